"""Following one run to its end: asking, attaching again when the stream is cut, cancelling on Ctrl-C."""

from __future__ import annotations

import asyncio
import random
import signal
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, TypeAlias

import msgspec

from headrace.cli.blocks import TERMINAL, Blocks
from headrace.cli.events import Event
from headrace.cli.exits import CANCELLED, COMPLETED, FAILED, Away, Cut, Refused, Unreachable
from headrace.cli.server import Server
from headrace.cli.spent import Standing
from headrace.cli.views import View
from headrace.cli.waits import Waits

TRIES_MAX = 8
"""Attaching again without a single new event; with the waits between them about half a minute."""

WAIT_FIRST_S, WAIT_MAX_S = 0.2, 8.0

TICK_S = 0.25
"""How often the status line moves."""

BUDGET_EVERY_S = 2.0
"""How often the server is asked what is left of the budget."""

EXIT_CODES = {"run.complete": COMPLETED, "run.cancel": CANCELLED, "run.error": FAILED}

Person: TypeAlias = Callable[["Following"], Coroutine[Any, Any, None]]


class Following:
    """One run, from the question to its end. Belongs to one event loop."""

    def __init__(self, server: Server, view: View, message: str, agent_key: str | None, chat_id: str | None) -> None:
        self.chat_id = chat_id
        """The run's chat, once it is known."""
        self.waits = Waits()
        """For people."""
        self.person: Person | None = None
        """Who answers them, and may stop or steer the run; None: nobody here."""
        self._server = server
        self._view = view
        self._blocks = Blocks(view)
        # With an id of ours the question may be asked again after a break: the server attaches instead.
        self._query: dict[str, Any] = {"message": message, "requestId": str(uuid.uuid4())}
        if agent_key:
            self._query["agentKey"] = agent_key
        self._run_id = ""
        self._last_seq = 0
        self._end: Event | None = None
        self._last_event_s = 0.0
        self._interrupted = asyncio.Event()

    async def to_the_end(self) -> int:
        """Show the run and return the exit code that says how it ended.

        Raises:
            Refused: The server did not take the question, or does not know the run any more.
            Unreachable: There is no server, or no longer one.
        """
        self._last_event_s = asyncio.get_running_loop().time()
        try:
            with self._ctrl_c():
                async with asyncio.TaskGroup() as group:
                    beside = [group.create_task(work) for work in self._beside()]
                    await self._read()
                    for task in beside:
                        task.cancel()
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors
        return EXIT_CODES[self._end.type] if self._end else FAILED

    def _beside(self) -> Iterator[Coroutine[Any, Any, None]]:
        """What is done while the run is read."""
        yield self._tick()
        yield self._cancel_on_interrupt()
        if self._view.is_live:
            yield self._tell_budget()
        if self.person is not None:
            yield self.person(self)

    async def cancel(self) -> None:
        """Ask the run to end; it is shown to its end."""
        if self._run_id:
            await self._server.post("/api/cancel", {"runId": self._run_id})

    async def steer(self, message: str) -> None:
        """Tell the running agent something."""
        await self._server.post("/api/steer", {"runId": self._run_id, "message": message})

    async def submit(self, body: dict[str, Any]) -> None:
        """Give the run what a person decided."""
        await self._server.post("/api/submit", {"runId": self._run_id} | body)

    async def _read(self) -> None:
        """Read until the run has ended, over any number of breaks that bring something new."""
        tries = 0
        while True:
            seen = self._last_seq
            try:
                async with self._opening() as events:
                    async for event in events:
                        self._take(event)
                return
            except (Cut, Unreachable, Away) as error:
                if self._end is not None:
                    return
                tries = 1 if self._last_seq > seen else tries + 1
                if tries > TRIES_MAX or not self.chat_id:
                    raise
                self._view.notice(f"{error.message}; attaching again")
            wait_s = min(WAIT_FIRST_S * 2 ** (tries - 1), WAIT_MAX_S)
            await asyncio.sleep(wait_s * random.uniform(0.5, 1))

    def _opening(self) -> AbstractAsyncContextManager[AsyncIterator[Event]]:
        if self._run_id:
            return self._server.attach(self._run_id, self._last_seq)
        return self._server.query(self._query | ({"chatId": self.chat_id} if self.chat_id else {}))

    def _take(self, event: Event) -> None:
        self._last_event_s = asyncio.get_running_loop().time()
        self._last_seq = max(self._last_seq, event.seq)
        self._run_id = self._run_id or event.run_id
        self.chat_id = event.chat_id or self.chat_id
        if event.type in TERMINAL:
            self._end = event
        self._blocks.show(event)
        if self.person is not None and (wait := self.waits.note(event)):
            self._view.ask(wait.prompt)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            if self.waits.first is None:
                self._view.waiting(asyncio.get_running_loop().time() - self._last_event_s)

    async def _tell_budget(self) -> None:
        """Keep the view informed of what is left; what cannot be learned is left out."""
        while True:
            await asyncio.sleep(BUDGET_EVERY_S)
            if not self._run_id:
                continue
            try:
                run = msgspec.json.decode(await self._server.get("/api/run", runId=self._run_id), type=Standing)
            except (Refused, Unreachable):
                continue
            self._view.left(run.budget_left.words if run.budget_left is not None else "")

    async def _cancel_on_interrupt(self) -> None:
        await self._interrupted.wait()
        if not self._run_id:
            raise SystemExit(CANCELLED)
        self._view.notice("cancelling; Ctrl-C again leaves at once")
        await self.cancel()

    @contextmanager
    def _ctrl_c(self) -> Generator[None]:
        """The first Ctrl-C cancels the run, whose end is then shown; the second one leaves."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    def _interrupt(self) -> None:
        if self._interrupted.is_set():
            raise SystemExit(CANCELLED)
        self._interrupted.set()


async def follow(
    url: str, view: View, message: str, agent_key: str | None, chat_id: str | None, person: Person | None = None
) -> tuple[int, str | None]:
    """Ask and show the run to its end: its exit code and its chat. A `person` acts while it runs."""
    async with Server(url) as server:
        following = Following(server, view, message, agent_key, chat_id)
        following.person = person
        return await following.to_the_end(), following.chat_id
