"""A run's events, passed on as they come until the run ends or waits."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

import grpc

from headrace.errors import Interrupted
from headrace.fold import TERMINAL
from headrace.v1 import agent_pb2
from services.runtime.rpc.push_stream import push_messages

CALL_END_TIMEOUT_S = 1.0
"""Longest wait for the end of a call whose run has ended."""

TURN_QUIET_S = 0.25
"""Silence after which a run that waits is left; longer than a model pauses between two calls of an answer."""


class RunTaker(Protocol):
    @property
    def is_over(self) -> bool:
        """Whether the run has ended, or its reader has all that it wants."""
        ...

    @property
    def is_waiting(self) -> bool:
        """Whether nothing more is to be expected before somebody answers."""
        ...

    def take(self, delta: agent_pb2.AgentDelta) -> bool:
        """Take an event; False if `wait_until_ready` is due."""
        ...

    async def wait_until_ready(self) -> None: ...


async def pipe_run(call: grpc.aio.UnaryStreamCall[Any, bytes], taker: RunTaker) -> None:
    """Pass on the events of `call`, which is cancelled in every case, to the run's end or until it waits.

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
            # Leaving before the call of a run that has ended has ended itself would count as a cancellation in logs and
            # metrics; one that goes on is left.
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
