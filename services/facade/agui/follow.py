"""Streams the events of a run, or of all runs of a thread, to one AG-UI client."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import grpc

from headrace.errors import HeadraceError
from headrace.v1 import agent_pb2
from services.facade.adapters.chat_states import ChatStates
from services.facade.adapters.run_pipe import pipe_run
from services.facade.agui.run_encoder import RunEncoder
from services.facade.agui.segment import Segment
from services.facade.responses.frame_writer import FrameWriter

RETRY_S = 15.0
"""How long a failed load of the session state is not retried."""


class _StateRefresh:
    def __init__(self, encoder: RunEncoder, writer: FrameWriter, states: ChatStates, chat_id: str) -> None:
        self._encoder = encoder
        self._writer = writer
        self._states = states
        self._chat_id = chat_id
        self._view = StateView()
        self._now = asyncio.get_running_loop().time
        self._retry_at_s = 0.0

    @property
    def is_due(self) -> bool:
        return self._encoder.is_state_due and not self._encoder.is_over and self._now() >= self._retry_at_s

    async def send_state(self) -> None:
        """Send the change of the session state; after a failed load, retry only after RETRY_S."""
        try:
            state = await self._states.load_state(self._chat_id)
        except (HeadraceError, grpc.aio.AioRpcError):
            self._retry_at_s = self._now() + RETRY_S  # each attempt delays the events that follow
            return
        self._encoder.is_state_due = False
        if state is not None and (change := self._view.describe_change(state)) is not None:
            kind, fields = change
            self._writer.send_frame(self._encoder.encode_state(kind, **fields))


class _RunSink:
    """Consumes a run's events until the run ends or waits."""

    def __init__(self, encoder: RunEncoder, writer: FrameWriter, refresh: _StateRefresh) -> None:
        self._encoder = encoder
        self._writer = writer
        self._refresh = refresh

    @property
    def is_over(self) -> bool:
        return self._encoder.is_over

    @property
    def is_waiting(self) -> bool:
        return self._encoder.is_waiting

    def take(self, delta: agent_pb2.AgentDelta) -> bool:
        frames = self._encoder.encode(delta)
        is_ready = self._writer.send_frame(frames) if frames else True
        return is_ready and not self._refresh.is_due

    async def wait_until_ready(self) -> None:
        if self._refresh.is_due:
            await self._refresh.send_state()
        if self._writer.has_frames:
            await self._writer.wait_until_drained()


async def follow_run(call: Any, encoder: RunEncoder, writer: FrameWriter, states: ChatStates, chat_id: str) -> None:
    """Write the run's events until it ends or waits.

    Raises:
        Interrupted: The events ended before the run.
    """
    await pipe_run(call, _RunSink(encoder, writer, _StateRefresh(encoder, writer, states, chat_id)))
    if not encoder.is_over:
        await writer.write_frame(encoder.end_waiting())


class ThreadSink:
    """Consumes the events of a chat's runs; the run in which the segment's cursor lies is replayed from its
    beginning.
    """

    def __init__(self, segment: Segment, writer: FrameWriter, states: ChatStates, chat_id: str) -> None:
        self._segment = segment
        self._writer = writer
        self._states = states
        self._chat_id = chat_id
        self._run_id = ""
        self._run: _RunSink | None = None

    async def take(self, followed: agent_pb2.FollowDelta) -> bool:
        if not followed.run_id:
            return True  # AG-UI has no events between runs
        if followed.run_id != self._run_id:
            self._run_id, self._run = followed.run_id, self._begin_run(followed)
        assert self._run is not None, "it has started"
        if not self._run.take(followed.delta):
            await self._run.wait_until_ready()
        return True

    def _begin_run(self, followed: agent_pb2.FollowDelta) -> _RunSink:
        n, _, _ = followed.cursor.partition(".")
        cursor = self._segment.cursor
        name = followed.delta.request_query.request_id or followed.run_id
        segment = replace(
            self._segment, n=n, client_run_id=name, cursor=cursor if cursor is not None and cursor.n == n else None
        )
        encoder = RunEncoder(segment, followed.run_id)
        return _RunSink(encoder, self._writer, _StateRefresh(encoder, self._writer, self._states, self._chat_id))


class StateView:
    """The session state as the reader last received it."""

    def __init__(self) -> None:
        self._shown: dict[str, Any] | None = None

    def describe_change(self, state: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
        """Return kind and fields of the event that updates the reader to `state`; None if nothing has changed."""
        before, self._shown = self._shown, state
        if before is None:
            return ("STATE_SNAPSHOT", {"snapshot": state}) if state else None
        patch: list[dict[str, Any]] = [
            {"op": "remove", "path": _point_to(name)} for name in before.keys() - state.keys()
        ]
        patch += [
            {"op": "add", "path": _point_to(name), "value": value}
            for name, value in state.items()
            if name not in before or before[name] != value
        ]
        return ("STATE_DELTA", {"delta": patch}) if patch else None


def _point_to(name: str) -> str:
    """Return the JSON Pointer of a member (RFC 6901); for an existing member, `add` replaces it."""
    return "/" + name.replace("~", "~0").replace("/", "~1")
