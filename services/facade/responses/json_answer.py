"""A run as one JSON answer, for `"stream": false`: the same stream, folded.

`content` is the final text: what the run itself (no sub-agent, no plan task) said after its last tool call. A run
that failed answers with the status of its error, a cancelled one with 499 CANCELLED and its runId.
"""

from __future__ import annotations

from typing import Any

import grpc
import orjson
from aiohttp import web

from headrace.errors import Interrupted
from headrace.streams import reading
from headrace.v1 import agent_pb2
from services.facade.responses import envelope
from services.runtime.json_form import encode

_RESTARTS = frozenset({"tool_start", "tool_snapshot", "action_start", "action_snapshot"})
"""What was said before these was not the final text."""


async def answer(call: grpc.aio.UnaryStreamCall[Any, agent_pb2.AgentDelta]) -> web.Response:
    """Read `call` to the end of its run. However this is left, the call is cancelled."""
    text = FinalText()
    chat_id = ""
    async with reading(call) as deltas:
        async for delta in deltas:
            text.add(delta)
            match delta.WhichOneof("payload"):
                case "run_start":
                    chat_id = delta.run_start.chat_id
                case "run_complete":
                    return _completed(delta.run_complete, chat_id, text)
                case "run_error":
                    return _failed(delta.run_error)
                case "run_cancel":
                    run_id = delta.run_cancel.run_id
                    return envelope.refused(499, "CANCELLED", "the run was cancelled", details={"runId": run_id})
                case _:
                    pass
    raise Interrupted("the run's stream ended before the run did; attach to it, or ask again", chatId=chat_id)


class FinalText:
    """The text blocks of a run since its last tool call; bounded by what a model may say."""

    def __init__(self) -> None:
        self._blocks: dict[str, list[tuple[int, str]]] = {}

    def add(self, delta: agent_pb2.AgentDelta) -> None:
        """Take one event; those of sub-agents and plan tasks say nothing final."""
        if delta.HasField("subagent_id") or delta.HasField("task_id"):
            return
        match delta.WhichOneof("payload"):
            case "content_delta":
                piece = (delta.seq, delta.content_delta.delta)
                self._blocks.setdefault(delta.content_delta.content_id, []).append(piece)
            case "content_start":
                self._blocks[delta.content_start.content_id] = []
            case "content_snapshot":
                self._blocks[delta.content_snapshot.content_id] = [(delta.seq, delta.content_snapshot.text)]
            case "attempt_reset":
                self._drop_after(delta.attempt_reset.from_seq)
            case name if name in _RESTARTS:
                self._blocks.clear()
            case _:
                pass

    def __str__(self) -> str:
        return "".join(text for block in self._blocks.values() for _, text in block)

    def _drop_after(self, seq: int) -> None:
        for name, block in self._blocks.items():
            self._blocks[name] = [piece for piece in block if piece[0] <= seq]


def _completed(end: agent_pb2.RunComplete, chat_id: str, text: FinalText) -> web.Response:
    return envelope.told(
        {
            "runId": end.run_id,
            "chatId": chat_id,
            "content": str(text),
            "finishReason": end.finish_reason,
            "usage": orjson.Fragment(encode(end.usage)),
        }
    )


def _failed(end: agent_pb2.RunError) -> web.Response:
    details = orjson.loads(end.error.details or "{}") | {"runId": end.run_id}
    return envelope.run_failure(end.error.code, end.error.message, retriable=end.error.retriable, details=details)
