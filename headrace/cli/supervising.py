"""Running the whole suite: start it, wait until it is ready, serve or ask, stop it in order."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import click

from headrace.cli.child import CannotStart, Child
from headrace.cli.complaints import Complaints
from headrace.cli.exits import CANCELLED, COMPLETED, Unreachable
from headrace.cli.lines import Lines
from headrace.cli.log_lines import LogLines
from headrace.cli.progress import progress
from headrace.cli.server import Server
from headrace.cli.suite import SuitePlan, overruled
from headrace.cli.talking import Talk

START_TIMEOUT_S = 60.0
"""From the first process to readiness, or from the last that a service said of how far it is; a slow machine needs
about five."""

POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Question:
    """What --ask asks."""

    message: str
    agent_key: str | None


async def run_suite(plan: SuitePlan, question: Question | None, *, is_verbose: bool) -> int:
    """Run the suite to its end and return the exit code."""
    logs_dir = plan.data_dir / "logs"
    try:
        logs_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotStart(f"--data-dir {plan.data_dir} cannot be written: {error.strerror}") from error
    specs = plan.children()
    for warning in overruled(specs, os.environ):
        _say(warning)
    children = [Child(spec, logs_dir, is_verbose=is_verbose, say=_say) for spec in specs]
    logs = [logs_dir / f"{child.name}.log" for child in children]
    # With --verbose they are on the terminal already.
    complaints, lines = Complaints([] if is_verbose else logs), LogLines(logs)
    stopped = asyncio.Event()
    code = COMPLETED
    try:
        with _signals(children, stopped):
            async with asyncio.TaskGroup() as group:
                for child in children:
                    group.create_task(child.supervise())
                try:
                    if await _until_ready(plan, children, lines, stopped):
                        telling = group.create_task(complaints.tell(_say))
                        code = await _serve(plan, question, stopped)
                        telling.cancel()
                finally:
                    for child in children:
                        await child.stop()
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from errors
    return code


async def _until_ready(plan: SuitePlan, children: list[Child], lines: LogLines, stopped: asyncio.Event) -> bool:
    """Wait until the whole chain is ready; False when told to stop before."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + START_TIMEOUT_S
    ready: dict[str, bool] = {}
    async with Server(plan.url) as server:
        while not stopped.is_set():
            with suppress(Unreachable):
                ready = await server.ready()
            if ready and all(ready.values()):
                for child in children:
                    child.has_been_ready = True
                return True
            for said in progress(lines):
                deadline = loop.time() + START_TIMEOUT_S
                _say(said)
            if loop.time() > deadline:
                missing = ", ".join(name for name, is_ready in ready.items() if not is_ready) or "the facade"
                raise CannotStart(f"not ready after {START_TIMEOUT_S:.0f} s: {missing} (see {plan.data_dir}/logs)")
            await asyncio.sleep(POLL_S)
    return False


async def _serve(plan: SuitePlan, question: Question | None, stopped: asyncio.Event) -> int:
    """Stay up until told to stop, or until the question is answered."""
    # Standard output belongs to the answer when there will be one.
    ready = f"ready: {plan.url}  grpc 127.0.0.1:{plan.grpc_port}  memory 127.0.0.1:{plan.memory_port}"
    click.echo(ready, err=question is not None)
    if question is None:
        await stopped.wait()
        return COMPLETED
    stopping = asyncio.create_task(stopped.wait())
    asking = asyncio.create_task(_answered(plan, question))
    try:
        await asyncio.wait((stopping, asking), return_when=asyncio.FIRST_COMPLETED)
        return asking.result() if asking.done() else CANCELLED
    finally:
        stopping.cancel()
        asking.cancel()


async def _answered(plan: SuitePlan, question: Question) -> int:
    """The exit code of the question's run. What it waits for is answered here, from standard input."""
    with Lines() as lines:
        talk = Talk(plan.url, lines, question.agent_key, None, is_terminal=sys.stdin.isatty())
        return await talk.ask(question.message)


@contextmanager
def _signals(children: list[Child], stopped: asyncio.Event) -> Generator[None]:
    """SIGTERM and Ctrl-C set `stopped`; a second one kills the children."""

    def stop() -> None:
        if stopped.is_set():
            for child in children:
                child.kill()
        else:
            _say("stopping; again to end at once")
            stopped.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def _say(text: str) -> None:
    click.echo(text, err=True)
