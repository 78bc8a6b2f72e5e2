"""Forwards a run's events until the run ends or waits."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

import grpc

from headrace.errors import Interrupted
from headrace.runs.fold import TERMINAL, Fold
from headrace.v1 import agent_pb2
from services.facade.responses.sse import CALL_END_TIMEOUT_S
from services.runtime.rpc.push_stream import push_messages

TURN_QUIET_S = 0.25
"""Silence after which to stop following a waiting run; longer than a model pauses between two calls of an answer."""


class RunTaker(Protocol):
    @property
    def is_over(self) -> bool:
        """Whether the run has ended or the reader needs no more events."""
        ...

    @property
    def is_waiting(self) -> bool:
        """Whether no events are expected until the run gets an answer."""
        ...

    def take(self, delta: agent_pb2.AgentDelta) -> bool:
        """Consume an event; return False when the caller must await `wait_until_ready`."""
        ...

    async def wait_until_ready(self) -> None: ...


class RunReader(Protocol):
    @property
    def fold(self) -> Fold: ...

    @property
    def is_over(self) -> bool: ...

    def take(self, delta: agent_pb2.AgentDelta) -> bool: ...

    async def wait_until_ready(self) -> None: ...


class UntilBegun:
    """Follows a run for a reader until it has started; the run then continues without a reader."""

    is_waiting = False

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader
        self.take = reader.take
        self.wait_until_ready = reader.wait_until_ready

    @property
    def is_over(self) -> bool:
        return bool(self._reader.fold.run_id)


class UntilOver(UntilBegun):
    """Follows a run for a reader to its end, also while it waits."""

    @property
    def is_over(self) -> bool:
        return self._reader.is_over


class UntilQuiet(UntilOver):
    """Follows a run for a reader until it ends or is silent for a moment."""

    is_waiting = True


async def pipe_run(call: grpc.aio.UnaryStreamCall[Any, bytes], taker: RunTaker) -> None:
    """Forward the events of `call` until the run ends or waits; the call is cancelled in every case.

    Raises:
        Interrupted: The events ended before the run.
    """
    ending = asyncio.timeout(None)
    now = asyncio.get_running_loop().time
    is_timed = False

    def take(message: bytes) -> bool:
        nonlocal is_timed
        if taker.is_over:
            return True
        delta = agent_pb2.AgentDelta.FromString(message)
        is_ready = taker.take(delta)
        if taker.is_over:
            # Logs and metrics would count it as a cancellation if we left before the call of an ended run has
            # ended. A call whose run continues is left at once.
            has_ended = delta.WhichOneof("payload") in TERMINAL
            ending.reschedule(now() + (CALL_END_TIMEOUT_S if has_ended else 0.0))
        elif taker.is_waiting:
            is_timed = True
            ending.reschedule(now() + TURN_QUIET_S)
        elif is_timed:
            is_timed = False
            ending.reschedule(None)
        return is_ready

    try:
        async with ending:
            await push_messages(call, take, taker.wait_until_ready)
    except TimeoutError:
        if not ending.expired():
            raise
        return
    if not taker.is_over:
        raise Interrupted("the run's stream ended before the run did")
