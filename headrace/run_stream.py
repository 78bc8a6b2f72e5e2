"""A run's events as they arrive, folded on the way.

    async with headrace.ask("Hello") as run:
        async for text in run.text():
            print(text, end="", flush=True)
    print(run.state.answer, run.state.end)

A reader that falls far behind gets whole blocks (snapshots) instead of deltas, so deltas alone are not the answer.
A broken stream, for example because the server restarts, is reopened after its last event. `ChatStream` does the same
for all runs of a chat.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import TypeAlias

from headrace.errors import Overloaded, ProviderUnavailable
from headrace.runs.fold import Fold
from headrace.runs.parts import Changes, TextAdded
from headrace.streams import rpc_errors
from headrace.v1 import agent_pb2

FIRST_PAUSE_S, PAUSE_MAX_S = 0.1, 5.0
"""First and longest pause between two attempts to reopen a stream; it doubles each time."""

Attach: TypeAlias = Callable[[str, int], Awaitable[AsyncIterator[agent_pb2.AgentDelta]]]
"""Opens a run's stream after a sequence number."""


Follow: TypeAlias = Callable[[str], Awaitable[AsyncIterator[agent_pb2.FollowDelta]]]
"""Opens a chat's stream after a cursor."""

Sleep: TypeAlias = Callable[[float], Awaitable[None]]
"""Sleeps for a number of seconds."""


class _Patience:
    """Paces the attempts to reopen a broken stream, and limits their total time."""

    def __init__(self, seconds: float, sleep: Sleep) -> None:
        self._seconds = seconds
        self._sleep = sleep
        self._pause_s = FIRST_PAUSE_S
        self._cut_at_s: float | None = None

    def restore(self) -> None:
        """Reset after an event: the stream is working."""
        self._pause_s, self._cut_at_s = FIRST_PAUSE_S, None

    async def wait(self) -> bool:
        """Wait before the next attempt; return False to give up. The first attempt is made immediately."""
        now_s = time.monotonic()
        self._cut_at_s = self._cut_at_s or now_s
        if now_s - self._cut_at_s >= self._seconds:
            return False
        if now_s > self._cut_at_s:
            await self._sleep(self._pause_s)
            self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)
        return True


class ChatStream(AsyncIterator[agent_pb2.FollowDelta]):
    """Iterates the events of a chat's runs, each with its run id and cursor; `cursor` is the place to resume from."""

    def __init__(
        self,
        deltas: AsyncIterator[agent_pb2.FollowDelta],
        follow: Follow,
        reattach_s: float,
        cursor: str,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """A broken stream is reopened with `follow` for at most `reattach_s` seconds without an event."""
        self.cursor = cursor
        self._deltas = deltas
        self._follow = follow
        self._patience = _Patience(reattach_s, sleep)

    async def __anext__(self) -> agent_pb2.FollowDelta:
        while True:
            try:
                with rpc_errors(is_client=True):
                    delta = await anext(self._deltas)
            except (StopAsyncIteration, ProviderUnavailable, Overloaded):
                if not await self._patience.wait():
                    raise
                self._deltas = await self._follow(self.cursor)
            else:
                self._patience.restore()
                self.cursor = delta.cursor
                return delta


class RunStream(AsyncIterator[agent_pb2.AgentDelta]):
    """Iterates the events of a run; `state` is the run's state so far."""

    def __init__(
        self,
        deltas: AsyncIterator[agent_pb2.AgentDelta],
        attach: Attach | None = None,
        reattach_s: float = 0.0,
        run_id: str = "",
        last_seq: int = 0,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """A broken stream is reopened with `attach` for at most `reattach_s` seconds without an event.

        Without `run_id`, the id is taken from the run's events, so a stream can be reopened only after the run
        has started. With `last_seq`, the stream and its state begin after that event.
        """
        self.state = Fold()
        self.state.last_seq = last_seq
        self._is_whole = last_seq == 0
        self._run_id = run_id
        self._deltas = deltas
        self._attach = attach
        self._patience = _Patience(reattach_s, sleep)
        self._changes: Changes = ()
        """Changes made by the last event."""

    async def __anext__(self) -> agent_pb2.AgentDelta:
        while True:
            try:
                with rpc_errors(is_client=True):
                    delta = await anext(self._deltas)
            except StopAsyncIteration:
                if not await self._reopen():
                    raise
            except (ProviderUnavailable, Overloaded):
                if not await self._reopen():
                    raise
            else:
                self._patience.restore()
                self._changes = self.state.apply(delta)
                return delta

    async def _reopen(self) -> bool:
        """Reopen the stream after the last event; return False if the run has ended or the attempts are used up."""
        run_id = self.state.run_id or self._run_id
        if self._attach is None or self.state.end is not None or not run_id:
            return False
        if not await self._patience.wait():
            return False
        self._deltas = await self._attach(run_id, self.state.last_seq)
        return True

    async def text(self) -> AsyncGenerator[str]:
        """Yield the run's own text as it arrives, with a blank line between blocks.

        This includes text before tool calls, so the whole may be longer than `state.answer`. A reopened stream repeats
        no text; a model that is asked again, because the process that owned the run has died, writes a new one. A run
        that fails or is cancelled ends the text without an exception: see `state.end`.
        """
        if not self._is_whole:
            raise ValueError("text() needs the run from its start: attach without last_seq")
        last_id = ""
        async for _ in self:
            for change in self._changes:
                if isinstance(change, TextAdded) and change.new and change.block.is_answer:
                    yield change.new if last_id in ("", change.block.id) else f"\n\n{change.new}"
                    last_id = change.block.id
