"""A run's events on their way to one AG-UI client, each written as it comes."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc

from headrace.errors import HeadraceError, Interrupted
from headrace.v1 import agent_pb2
from services.facade.agui.run_encoder import RunEncoder
from services.facade.agui.state import States, StateView
from services.facade.responses.frame_writer import FrameWriter
from services.runtime.rpc.push_stream import pipe_messages

CALL_END_TIMEOUT_S = 1.0
"""Longest wait for the end of a call whose run has ended."""

TURN_QUIET_S = 0.25
"""Silence after which a run that waits ends its stream; longer than a model pauses between two calls."""


class _StateRefresh:
    def __init__(self, encoder: RunEncoder, writer: FrameWriter, states: States, chat_id: str) -> None:
        self._encoder = encoder
        self._writer = writer
        self._states = states
        self._chat_id = chat_id
        self._view = StateView()

    async def send_state(self) -> None:
        """Tell what has changed; a state that cannot be had now is told another time."""
        try:
            state = await self._states.load_state(self._chat_id)
        except (HeadraceError, grpc.aio.AioRpcError):
            return
        self._encoder.is_state_due = False
        if state is not None and (change := self._view.describe_change(state)) is not None:
            kind, fields = change
            self._writer.send_frame(self._encoder.encode_state(kind, **fields))


class _RunSink:
    """Takes a run's deltas as bytes, until the run ends or waits."""

    def __init__(
        self, encoder: RunEncoder, writer: FrameWriter, ending: asyncio.Timeout, refresh: _StateRefresh
    ) -> None:
        self._encoder = encoder
        self._writer = writer
        self._ending = ending
        self._refresh = refresh
        self._is_timed = False
        self._now = asyncio.get_running_loop().time

    def send(self, message: bytes) -> bool:
        encoder = self._encoder
        if encoder.is_over:
            return True
        frames = encoder.encode(agent_pb2.AgentDelta.FromString(message))
        if encoder.is_over:
            # Leaving before the call has ended would count as a cancellation in logs and metrics.
            self._ending.reschedule(self._now() + CALL_END_TIMEOUT_S)
        elif encoder.is_waiting:
            self._is_timed = True
            self._ending.reschedule(self._now() + TURN_QUIET_S)
        elif self._is_timed:
            self._is_timed = False
            self._ending.reschedule(None)
        is_ready = self._writer.send_frame(frames) if frames else True
        return is_ready and not encoder.is_state_due

    async def wait_until_drained(self) -> None:
        if self._encoder.is_state_due and not self._encoder.is_over:
            await self._refresh.send_state()
        if self._writer.has_frames:
            await self._writer.wait_until_drained()


async def follow_run(
    call: grpc.aio.UnaryStreamCall[Any, bytes], encoder: RunEncoder, writer: FrameWriter, states: States, chat_id: str
) -> None:
    """Write the run's events to its end, or until it waits; the call is cancelled in every case.

    Raises:
        Interrupted: The events ended before the run.
    """
    ending = asyncio.timeout(None)
    sink = _RunSink(encoder, writer, ending, _StateRefresh(encoder, writer, states, chat_id))
    try:
        async with ending:
            await pipe_messages(call, sink)
    except TimeoutError:
        if not ending.expired():
            raise
        if not encoder.is_over:
            await writer.write_frame(encoder.end_waiting())
    if not encoder.is_over:
        raise Interrupted("the run's stream ended before the run did")
