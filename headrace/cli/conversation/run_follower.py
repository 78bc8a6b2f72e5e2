"""Follows one run: starts it, reattaches when the stream breaks, and cancels it on Ctrl-C."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import uuid
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import click

from headrace.cli.conversation.pending_inputs import PendingInputs
from headrace.cli.facade.client import FacadeClient
from headrace.cli.facade.exit_codes import (
    CANCELLED,
    COMPLETED,
    FAILED,
    PeerUnavailable,
    RequestRefused,
    RunWaits,
    ServerUnreachable,
    StreamCut,
)
from headrace.cli.run_view.notices import describe_waits
from headrace.cli.run_view.printing import describe_budget
from headrace.cli.run_view.run_display import RunDisplay
from headrace.cli.run_view.view import View
from headrace.runs.parts import GateOpened
from headrace.v1 import agent_pb2, gates_pb2

TRIES_MAX = 8
"""Attempts to reattach without a new event; with the waits, about half a minute."""

WAIT_FIRST_S, WAIT_MAX_S = 0.2, 8.0

TICK_S = 0.25
"""Update interval of the status line."""

QUIET_S = 1.0
"""Silence after which a run with an open gate is considered to wait."""

BUDGET_EVERY_S = 2.0
"""Interval at which the remaining budget is fetched."""

EXIT_CODES = {"run_complete": COMPLETED, "run_cancel": CANCELLED, "run_error": FAILED}

Interaction: TypeAlias = Callable[["RunFollower"], Coroutine[Any, Any, None]]
"""Coroutine for the user's actions during the run: input, cancelling, steering."""


class RunFollower:
    def __init__(
        self,
        facade: FacadeClient,
        view: View,
        message: str,
        agent_key: str | None,
        chat_id: str | None,
        output_schema: Any = None,
        references: Sequence[Any] = (),
        *,
        is_recorded: bool = False,
    ) -> None:
        self.interaction: Interaction | None = None
        """The user's actions; None without a user."""
        self._facade = facade
        self._view = view
        self._display = RunDisplay(view)
        self.pending_inputs = PendingInputs(self._display.state)
        # Our own request id makes a repeated question safe: the server attaches to the same run.
        self._query: dict[str, Any] = {"message": message, "requestId": str(uuid.uuid4())}
        if agent_key:
            self._query["agentKey"] = agent_key
        if output_schema is not None:
            self._query["outputFormat"] = {"schema": output_schema}
        if references:
            self._query["references"] = references
        if is_recorded:
            self._query["record"] = True
        self._chat_id = chat_id
        self._run_id = ""
        self._last_event_s = 0.0
        """Loop time of the last event."""
        self._interrupted = asyncio.Event()

    @property
    def run_id(self) -> str:
        """Id of the run; empty until known."""
        return self._display.state.run_id

    @property
    def chat_id(self) -> str | None:
        """Chat of the run, once known."""
        return self._display.state.chat_id or self._chat_id

    async def follow_to_end(self) -> int:
        """Show the run and return its exit code.

        Raises:
            RequestRefused: The server refused the question or no longer knows the run.
            RunWaits: The run waits, and no user can answer here.
            ServerUnreachable: No server answers.
        """
        self._last_event_s = asyncio.get_running_loop().time()
        try:
            with self._handle_interrupts():
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(work) for work in self._list_side_tasks()]
                    await self._read_events()
                    for task in tasks:
                        task.cancel()
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors
        end = self._display.state.end
        return EXIT_CODES[end.WhichOneof("payload") or ""] if end is not None else FAILED

    def _list_side_tasks(self) -> Iterator[Coroutine[Any, Any, None]]:
        yield self._update_status()
        yield self._cancel_on_interrupt()
        if self._view.is_live:
            yield self._update_budget()
        if self.interaction is not None:
            yield self.interaction(self)

    async def cancel(self) -> None:
        """Request cancellation of the run, which is then still shown to its end."""
        if self._run_id:
            await self._facade.send(agent_pb2.CancelRequest(run_id=self._run_id))

    async def steer(self, message: str) -> None:
        await self._facade.send(agent_pb2.SteerRequest(run_id=self._run_id, message=message))

    async def submit(self, body: dict[str, Any]) -> None:
        fields = body | {"run_id": self._run_id, "payload": json.dumps(body["payload"])}
        await self._facade.send(agent_pb2.SubmitRequest(**fields))

    async def fetch_arguments_hash(self, gate_id: str) -> str:
        """Return the hash that an approval of long arguments must include; this client shows all of them."""
        request = gates_pb2.GetGateRequest(run_id=self._run_id, gate_id=gate_id)
        return (await self._facade.send(request)).gate.arguments_sha256

    async def _read_events(self) -> None:
        """Read events to the run's end, reattaching after each break."""
        state = self._display.state
        tries, last_notice = 0, ""
        while True:
            seq_before = state.last_seq
            try:
                chat = {"chatId": self.chat_id} if self.chat_id else {}
                if self._run_id:
                    stream = self._facade.attach(self._run_id, seq_before)
                else:
                    stream = self._facade.query(self._query | chat)
                async with stream as events:
                    async for event in events:
                        self._take_event(event)
                return
            except (StreamCut, ServerUnreachable, PeerUnavailable) as error:
                if state.end is not None:
                    return
                tries = 1 if state.last_seq > seq_before else tries + 1
                if tries > TRIES_MAX or not self.chat_id:
                    raise
                if error.message != last_notice:
                    last_notice = error.message
                    self._view.show_notice(f"{last_notice}; attaching again")
            wait_s = min(WAIT_FIRST_S * 2 ** (tries - 1), WAIT_MAX_S)
            await asyncio.sleep(wait_s * random.uniform(0.5, 1))

    def _take_event(self, event: agent_pb2.AgentDelta) -> None:
        self._last_event_s = asyncio.get_running_loop().time()
        # A queued run sends events with its id before it starts.
        payload = getattr(event, event.WhichOneof("payload") or "", None)
        self._run_id = self._run_id or getattr(payload, "run_id", "")
        for change in self._display.show_event(event):
            if not isinstance(change, GateOpened) or self.interaction is None:
                continue
            if pending := self.pending_inputs.add(change.gate.open):
                self._view.show_prompt(pending.prompt)

    async def _update_status(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            silence_s = asyncio.get_running_loop().time() - self._last_event_s
            if self.interaction is None and self._display.state.gates and silence_s > QUIET_S:
                state = self._display.state
                gates = [(gate.open, state.get_arguments(gate.open.tool_id)) for gate in state.gates.values()]
                self._view.show_notice("the run waits, and continues without this command")
                raise RunWaits("\n".join(describe_waits(self._run_id, self.chat_id, gates)))
            if self.pending_inputs.first is None:
                self._view.show_waiting(silence_s)

    async def _update_budget(self) -> None:
        """Show the remaining budget; a failed request is retried at the next interval."""
        while True:
            await asyncio.sleep(BUDGET_EVERY_S)
            if not self._run_id:
                continue
            try:
                run: agent_pb2.Run = (await self._facade.send(agent_pb2.GetRunRequest(run_id=self._run_id))).run
            except (RequestRefused, ServerUnreachable):
                continue
            self._view.set_budget(describe_budget(run.budget_left) if run.HasField("budget_left") else "")

    async def _cancel_on_interrupt(self) -> None:
        await self._interrupted.wait()
        if not self._run_id:
            raise SystemExit(CANCELLED)
        self._view.show_notice("cancelling; Ctrl-C again leaves at once")
        await self.cancel()

    @contextmanager
    def _handle_interrupts(self) -> Generator[None]:
        """Cancel the run at the first Ctrl-C, exit at the second."""

        def interrupt() -> None:
            if self._interrupted.is_set():
                raise SystemExit(CANCELLED)
            self._interrupted.set()

        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, interrupt)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)


async def follow_run(
    view: View,
    message: str,
    agent_key: str | None,
    chat_id: str | None,
    interaction: Interaction | None = None,
    output_schema: Any = None,
    files: Sequence[Path] = (),
    *,
    is_recorded: bool = False,
) -> tuple[int, str | None]:
    """Upload `files`, ask, and show the run to its end; return exit code and chat id.

    A recorded run's download command is printed at the end.
    """
    async with FacadeClient() as facade:
        if files:
            chat_id = chat_id or str(uuid.uuid4())
        references = [await facade.upload(file, chat_id or "") for file in files]
        follower = RunFollower(
            facade, view, message, agent_key, chat_id, output_schema, references, is_recorded=is_recorded
        )
        follower.interaction = interaction
        code = await follower.follow_to_end()
        if is_recorded:
            click.echo(f"recorded: headrace record {follower.run_id}", err=True)
        return code, follower.chat_id
