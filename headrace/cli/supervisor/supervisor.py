"""Runs the whole suite: start, wait for readiness, serve or ask, stop in order."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import msgspec

from headrace.cli.facade.exit_codes import CANCELLED, COMPLETED
from headrace.cli.supervisor.child_environment import PROVIDER_FILE
from headrace.cli.supervisor.child_process import ChildProcess, show_text
from headrace.cli.supervisor.error_reports import ErrorReports, LogReader, describe_progress
from headrace.cli.supervisor.ports import CannotStart
from headrace.cli.supervisor.suite_plan import SuitePlan, describe_next_steps, describe_overruled_settings

START_TIMEOUT_S = 60.0
"""Time without progress after which the start is given up; a slow machine needs about five seconds."""

PROGRESS_CPU_S = 3.0
"""CPU time of a process that also counts as progress; a service that only waits uses less than 1 % of a CPU."""

POLL_S = 0.1

NOTICE_S = 10.0
"""Time after which the start names the services it waits for."""

HOPELESS = "provider file refused"
"""Event of the gateway's log after which it never becomes ready by itself."""


@dataclass(frozen=True, slots=True)
class Question:
    message: str
    agent_key: str | None


async def run_suite(plan: SuitePlan, question: Question | None, *, is_verbose: bool) -> int:
    logs_dir = plan.data_dir / "logs"
    try:
        plan.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        logs_dir.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise CannotStart(f"--data-dir {plan.data_dir} cannot be written: {error.strerror}") from error
    specs = plan.build_processes()
    for warning in describe_overruled_settings(specs, os.environ):
        show_text(warning)
    children = [ChildProcess(spec, logs_dir, is_verbose=is_verbose, report=show_text) for spec in specs]
    logs = [logs_dir / f"{child.name}.log" for child in children]
    # With --verbose, errors are already on the terminal.
    errors, reader = ErrorReports([] if is_verbose else logs), LogReader(logs)
    stopped = asyncio.Event()
    code = COMPLETED
    try:
        with _handle_signals(children, stopped):
            async with asyncio.TaskGroup() as group:
                for child in children:
                    group.create_task(child.supervise())
                try:
                    if await _wait_until_ready(plan, children, reader, errors, stopped):
                        reporting = group.create_task(errors.report_errors(show_text))
                        code = await _serve(plan, question, stopped)
                        reporting.cancel()
                finally:
                    await _stop_in_order(children)
    except ExceptionGroup as group_error:
        raise group_error.exceptions[0] from group_error
    return code


async def _stop_in_order(children: list[ChildProcess]) -> None:
    """Stop the processes one by one, but replicas together: a remaining replica would take over the others' runs."""
    for _, some in groupby(children, key=lambda child: "" if child.is_replica else child.name):
        await asyncio.gather(*(child.stop() for child in some))


async def _wait_until_ready(
    plan: SuitePlan, children: list[ChildProcess], logs: LogReader, errors: ErrorReports, stopped: asyncio.Event
) -> bool:
    """Wait until all services are ready, as long as they make progress; return False if stopped before."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + START_TIMEOUT_S
    readiness: dict[str, bool] = {}
    ready_count, cpu_s = 0, [0.0] * len(children)
    notice_s, waited_for = loop.time() + NOTICE_S, ""
    while not stopped.is_set():
        readiness = await fetch_readiness(plan.entrances)
        if all(readiness.values()):
            for child in children:
                child.has_been_ready = True
            return True
        progress = list(describe_progress(logs))
        problems = list(errors.read_errors())
        for text in (*progress, *problems):
            show_text(text)
        if any(HOPELESS in text for text in problems):
            raise CannotStart(f"{plan.config_dir / PROVIDER_FILE} cannot be used; `headrace check {plan.config_dir}`")
        missing = ", ".join(name for name, is_ready in readiness.items() if not is_ready)
        if loop.time() > notice_s and missing != waited_for:
            show_text(f"waiting for {missing} (logs: {plan.data_dir}/logs)")
            waited_for = missing
        used_s = [child.measure_cpu_s() for child in children]
        has_worked = any(now - before >= PROGRESS_CPU_S for now, before in zip(used_s, cpu_s, strict=True))
        if progress or has_worked or sum(readiness.values()) > ready_count:
            deadline = loop.time() + START_TIMEOUT_S
            ready_count, cpu_s = max(ready_count, sum(readiness.values())), used_s
        if loop.time() > deadline:
            raise CannotStart(f"not ready after {START_TIMEOUT_S:.0f} s: {missing} (see {plan.data_dir}/logs)")
        await asyncio.sleep(POLL_S)
    return False


async def _serve(plan: SuitePlan, question: Question | None, stopped: asyncio.Event) -> int:
    """Serve until stopped, or until the question is answered; return the exit code."""
    # If there is a question, standard output is reserved for the answer.
    ready = f"ready: {plan.url}  grpc 127.0.0.1:{plan.grpc_port}  memory 127.0.0.1:{plan.memory_port}"
    show_text(ready, on_stdout=question is None)
    if question is None:
        show_text("\n".join(describe_next_steps(plan, os.environ)), on_stdout=True)
        await stopped.wait()
        return COMPLETED
    stopping = asyncio.create_task(stopped.wait())
    asking = asyncio.create_task(_ask(plan, question))
    try:
        await asyncio.wait((stopping, asking), return_when=asyncio.FIRST_COMPLETED)
        return asking.result() if asking.done() else CANCELLED
    finally:
        stopping.cancel()
        asking.cancel()


async def _ask(plan: SuitePlan, question: Question) -> int:
    """Ask the question and return the exit code of its run."""
    # Imported only for a question, so that `up` without one stays small.
    from headrace.cli.conversation.conversation import Conversation
    from headrace.cli.conversation.input_lines import InputLines

    with InputLines() as lines:
        is_terminal = sys.stdin.isatty()
        return await Conversation(lines, question.agent_key, None, is_terminal=is_terminal).ask(question.message)


@contextmanager
def _handle_signals(children: list[ChildProcess], stopped: asyncio.Event) -> Generator[None]:
    """Set `stopped` at SIGTERM, Ctrl-C or the terminal's hang-up; a second SIGTERM or Ctrl-C kills the children."""

    def stop(number: signal.Signals) -> None:
        if stopped.is_set() and number == signal.SIGHUP:
            return  # sent by both the kernel and the shell
        if stopped.is_set():
            for child in children:
                child.kill()
        else:
            show_text("stopping; again to end at once")
            stopped.set()

    loop = asyncio.get_running_loop()
    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as under nohup
        numbers.append(signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, stop, number)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


ANSWER_TIMEOUT_S = 10.0


class _Envelope(msgspec.Struct):
    data: dict[str, bool]


_ENVELOPE = msgspec.json.Decoder(_Envelope)


async def fetch_readiness(entrances: Mapping[str, int | Path]) -> dict[str, bool]:
    """Return the readiness by service, prefixed by the process name if there are several processes.

    If a facade does not answer, only the facade is reported as not ready, and nothing about the services it calls.
    """
    answers = await asyncio.gather(*(_ask_facade(entrance) for entrance in entrances.values()))
    return {
        f"{process}: {service}" if process else service: is_ready
        for process, answer in zip(entrances, answers, strict=True)
        for service, is_ready in (answer or {"facade": False}).items()
    }


async def _ask_facade(entrance: int | Path) -> dict[str, bool]:
    """Return the readiness that the facade at this port or socket reports; empty if it does not answer."""
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            if isinstance(entrance, Path):
                reader, writer = await asyncio.open_unix_connection(entrance)
            else:
                reader, writer = await asyncio.open_connection("127.0.0.1", entrance)
            try:
                writer.write(b"GET /readyz?all= HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
                answer = await reader.read()
            finally:
                writer.close()
        return _ENVELOPE.decode(answer.partition(b"\r\n\r\n")[2]).data
    except (OSError, TimeoutError, msgspec.MsgspecError):  # includes an answer cut off by shutdown
        return {}
