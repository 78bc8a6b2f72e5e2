"""Steps as events of a stream, or as one JSON body.

Adjacent texts of one kind share a content block; each tool call has its own.
"""

from __future__ import annotations

from secrets import token_hex
from typing import TYPE_CHECKING, Any

import orjson

from services.simulator.playback.repeated_frames import RepeatedFrame
from services.simulator.protocols.common.signatures import sign_thinking
from services.simulator.scripts.steps import (
    Content,
    Cut,
    End,
    Finish,
    Frame,
    Raw,
    Reasoning,
    Repeat,
    Reply,
    Stall,
    Step,
    ToolCall,
    UsageReport,
    Wait,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from services.simulator.playback.player import Action
    from services.simulator.requests.model_request import ModelRequest

_ERROR_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}
"""Anthropic's names of the reasons that scripts share with the other protocol; its own pass unchanged."""


def build_error(message: str, status: int) -> dict[str, Any]:
    kind = _ERROR_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    error = {"type": kind, "message": message}
    return {"type": "error", "error": error, "request_id": f"req_{token_hex(12)}"}


def stream_reply(request: ModelRequest, reply: Reply, *, pace_ms: float) -> Iterator[Action]:
    """Yield the actions that stream `reply`, with `pace_ms` before each delta unless the reply has its own."""
    stream = _BlockStream(Wait(wait_ms=pace_ms if reply.pace_ms is None else reply.pace_ms))
    if reply.opening:
        message = _build_message(request, [], None, {"input_tokens": request.prompt_tokens, "output_tokens": 1})
        yield _encode_event("message_start", message=message)
    yield Wait(wait_ms=reply.first_delta_delay_ms)
    for step in reply.steps:
        yield from stream.play_step(step)
        if isinstance(step, End | Cut):
            return
    yield from stream.close_block()
    if not any(isinstance(step, Finish) for step in reply.steps):
        yield _encode_message_delta(_choose_stop_reason(reply), _build_usage(request, reply, stream.deltas))
    yield _encode_event("message_stop")


class _BlockStream:
    def __init__(self, pace: Wait) -> None:
        self._pace = pace
        self._index = -1
        self._kind = ""
        """Kind of the open block; empty when none is open."""
        self._thought: list[str] = []
        self.deltas = 0
        """Number of deltas sent."""

    def play_step(self, step: Step) -> Iterator[Action]:
        match step:
            case Content(content=texts):
                yield from self._open_block("text", text="")
                yield from self._send_deltas("text_delta", "text", texts)
            case Repeat(repeat=text, times=times):
                yield from self._open_block("text", text="")
                self.deltas += times
                yield RepeatedFrame(self._encode_delta("text_delta", "text", text), times, self._pace.wait_ms)
            case Reasoning(reasoning=texts):
                yield from self._open_block("thinking", thinking="", signature="")
                self._thought += texts
                yield from self._send_deltas("thinking_delta", "thinking", texts)
            case ToolCall():
                yield from self.close_block()
                yield from self._open_block("tool_use", id=step.id, name=step.tool_call, input={})
                # The real service begins with an empty piece.
                yield from self._send_deltas("input_json_delta", "partial_json", ("", *step.arguments))
            case Frame(frame=frame):
                yield _encode_event(**({"type": "message"} | frame))
            case Raw(raw=texts):
                yield from (text.encode("latin-1") for text in texts)
            case Finish(finish=reason):
                yield from self.close_block()
                yield _encode_message_delta(_STOP_REASONS.get(reason, reason), {"output_tokens": self.deltas})
            case UsageReport(usage=usage):
                yield _encode_message_delta(None, usage)
            case Wait() | Stall() | Cut() | End():
                yield step
            case _:
                raise AssertionError(f"{type(step).__name__} is answered before a stream begins")

    def _open_block(self, kind: str, **fields: Any) -> Iterator[Action]:
        if self._kind == kind:
            return
        yield from self.close_block()
        self._index += 1
        self._kind = kind
        yield _encode_event("content_block_start", index=self._index, content_block={"type": kind, **fields})

    def _send_deltas(self, kind: str, field: str, texts: Iterable[str]) -> Iterator[Action]:
        for text in texts:
            yield self._pace
            self.deltas += 1
            yield self._encode_delta(kind, field, text)

    def _encode_delta(self, kind: str, field: str, text: str) -> bytes:
        return _encode_event("content_block_delta", index=self._index, delta={"type": kind, field: text})

    def close_block(self) -> Iterator[Action]:
        """End the open block, with a signature if it is thinking."""
        if not self._kind:
            return
        if self._kind == "thinking":
            signature = sign_thinking("".join(self._thought))
            self._thought.clear()
            yield _encode_event(
                "content_block_delta", index=self._index, delta={"type": "signature_delta", "signature": signature}
            )
        self._kind = ""
        yield _encode_event("content_block_stop", index=self._index)


def _encode_event(type: str, **fields: Any) -> bytes:
    data = orjson.dumps({"type": type, **fields})
    return b"event: " + type.encode() + b"\ndata: " + data + b"\n\n"


def _encode_message_delta(stop_reason: str | None, usage: dict[str, Any]) -> bytes:
    return _encode_event("message_delta", delta={"stop_reason": stop_reason, "stop_sequence": None}, usage=usage)


def _build_message(
    request: ModelRequest, content: list[Any], stop_reason: str | None, usage: dict[str, Any]
) -> dict[str, Any]:
    start = {"id": f"msg_{token_hex(12)}", "type": "message", "role": "assistant", "model": request.model}
    return start | {"content": content, "stop_reason": stop_reason, "stop_sequence": None, "usage": usage}


def _choose_stop_reason(reply: Reply) -> str:
    given = next((step.finish for step in reply.steps if isinstance(step, Finish)), None)
    has_calls = any(isinstance(step, ToolCall) for step in reply.steps)
    return _STOP_REASONS.get(given or "", given or ("tool_use" if has_calls else "end_turn"))


def _build_usage(request: ModelRequest, reply: Reply, deltas: int) -> dict[str, Any]:
    given = next((step.usage for step in reversed(reply.steps) if isinstance(step, UsageReport)), None)
    return given or {"input_tokens": request.prompt_tokens, "output_tokens": deltas}


def build_whole_reply(request: ModelRequest, reply: Reply) -> Iterator[Action]:
    """Yield the actions for one JSON body, after its silences and cuts."""
    yield Wait(wait_ms=reply.first_delta_delay_ms)
    yield from (step for step in reply.steps if isinstance(step, Wait | Stall | Cut))
    content: list[dict[str, Any]] = []
    deltas = 0
    for step in reply.steps:
        match step:
            case Content(content=texts):
                content.append({"type": "text", "text": "".join(texts)})
            case Reasoning(reasoning=texts):
                thought = "".join(texts)
                content.append({"type": "thinking", "thinking": thought, "signature": sign_thinking(thought)})
            case ToolCall(arguments=texts):
                arguments = orjson.loads("".join(texts) or "{}")
                content.append({"type": "tool_use", "id": step.id, "name": step.tool_call, "input": arguments})
                deltas += 1  # the empty piece with which its arguments begin in a stream
            case _:
                continue
        deltas += len(texts)
    usage = {"input_tokens": request.prompt_tokens} | _build_usage(request, reply, deltas)
    yield orjson.dumps(_build_message(request, content, _choose_stop_reason(reply), usage))
