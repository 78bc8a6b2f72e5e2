"""One tool call of an agent: follows a run from its start, or from its last wait, to its result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import orjson

from headrace.v1 import agent_pb2
from services.facade.mcp_server.protocol import Message
from services.facade.mcp_server.run_view import RunView
from services.facade.responses.frame_writer import FrameWriter

PROGRESS_S = 15.0
"""Silence after which the client gets a progress notification; SDKs time out after 60 s or less."""


class ToolCall:
    """Consumes a run's events; sends progress, and elicits answers from the user if the client supports it."""

    def __init__(
        self, message: Message, writer: FrameWriter, view: RunView, meta: dict[str, Any] | None = None
    ) -> None:
        """`meta` is the `_meta` of requests to the client."""
        self._message = message
        self._writer = writer
        self._view = view
        self._meta = {"_meta": meta} if meta else {}
        self._progress = 0

    @property
    def run_id(self) -> str:
        return self._view.fold.run_id

    @property
    def is_over(self) -> bool:
        return self._view.is_over

    @property
    def is_waiting(self) -> bool:
        """Whether the call must end and return its open gates for the client to answer."""
        view = self._view
        return bool(view.fold.gates and view.gates) and self._message.is_modern and self._message.can_elicit

    async def wait_until_ready(self) -> None:
        if self._writer.has_frames:
            await self._writer.wait_until_drained()

    @asynccontextmanager
    async def tell_time(self) -> AsyncGenerator[None]:
        """Send progress notifications while inside the block, also while the model is silent."""
        telling = asyncio.create_task(self._tell_time())
        try:
            yield
        finally:
            telling.cancel()

    async def _tell_time(self) -> None:
        while True:
            before = self._progress
            await asyncio.sleep(PROGRESS_S)
            if self._progress == before:
                self._tell("at work")

    def take(self, delta: agent_pb2.AgentDelta) -> bool:
        self._view.fold.apply(delta)
        match delta.WhichOneof("payload"):
            case "content_delta" | "reasoning_delta" | "tool_args":
                return True  # nearly all events
            case "gate_open" if delta.gate_open.gate_id not in self._view.answered:
                return self.ask(delta.gate_open)
            case "tool_start":
                return self._tell(f"calls {delta.tool_start.tool_name}")
            case "task_start":
                return self._tell(f"task: {delta.task_start.task_name or delta.task_start.description}")
            case "subagent_start":
                return self._tell(f"{delta.subagent_start.agent_key}: {delta.subagent_start.goal}")
            case "run_notice":
                return self._tell(delta.run_notice.message)
            case _:
                pass
        return True

    def ask(self, gate: agent_pb2.GateOpen) -> bool:
        """Elicit an answer in the call's stream, if the protocol version supports that."""
        if self._message.is_modern:
            return True
        if not self._message.can_elicit:
            return self._tell(f"{gate.tool_name} waits for an answer, which Headrace's own clients can give")
        asked = self._view.build_elicitation(gate) | self._meta
        return self._send({"id": self._view.make_name(gate), "method": "elicitation/create", "params": asked})

    def _tell(self, text: str) -> bool:
        self._progress += 1
        token = self._message.progress_token
        if token is None:
            return True
        params = {"progressToken": token, "progress": self._progress, "message": text[:1000]}
        return self._send({"method": "notifications/progress", "params": params})

    def _send(self, message: dict[str, Any]) -> bool:
        return self._writer.send_frame(encode_frame(orjson.dumps({"jsonrpc": "2.0"} | message)))


def encode_frame(message: bytes) -> bytes:
    return b"event: message\ndata: %b\n\n" % message
