"""Steps as frames of a stream, or as one JSON body."""

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
    from collections.abc import Iterator

    from services.simulator.playback.player import Action
    from services.simulator.requests.model_request import ModelRequest

_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}
_REASONS = {"stop": "STOP", "tool_calls": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY"}
"""Gemini's names of the reasons that scripts share with other protocols; its own pass unchanged."""

Part = dict[str, Any]

SIGNATURE = sign_thinking("")
"""Of all calls: nothing that the suite may change of one is in it."""


def build_error(message: str, status: int) -> dict[str, Any]:
    return {"error": {"code": status, "message": message, "status": _STATUSES.get(status, "UNKNOWN")}}


def stream_reply(request: ModelRequest, reply: Reply, *, pace_ms: float) -> Iterator[Action]:
    """Yield the actions that stream `reply`, with `pace_ms` before each frame unless the reply has its own."""
    pace = Wait(wait_ms=pace_ms if reply.pace_ms is None else reply.pace_ms)
    start = {"modelVersion": request.model, "responseId": token_hex(8)}
    yield Wait(wait_ms=reply.first_delta_delay_ms)
    deltas = 0
    for step in reply.steps:
        if isinstance(step, Repeat):
            deltas += step.times
            yield RepeatedFrame(_encode(start, [{"text": step.repeat}]), step.times, pace.wait_ms)
            continue
        for part in _list_parts(step):
            yield pace
            deltas += 1
            yield _encode(start, [part])
        match step:
            case Frame(frame=frame):
                yield b"data: " + orjson.dumps(frame) + b"\r\n\r\n"
            case Raw(raw=texts):
                yield from (text.encode("latin-1") for text in texts)
            case Wait() | Stall() | Cut() | End():
                yield step
            case _:
                pass
        if isinstance(step, End | Cut):
            return
    yield _encode(start | {"usageMetadata": _build_usage(request, reply, deltas)}, [], _choose_reason(reply))


def _list_parts(step: Step) -> Iterator[Part]:
    match step:
        case Content(content=texts):
            yield from ({"text": text} for text in texts)
        case Reasoning(reasoning=texts):
            yield from ({"text": text, "thought": True} for text in texts)
        case ToolCall():
            arguments = orjson.loads("".join(step.arguments) or "{}")
            call = {"id": step.id, "name": step.tool_call, "args": arguments}
            yield {"functionCall": call} | ({} if step.index else {"thoughtSignature": SIGNATURE})
        case _:
            pass


def _encode(start: dict[str, Any], parts: list[Part], reason: str | None = None) -> bytes:
    candidate: dict[str, Any] = {"content": {"parts": parts, "role": "model"}, "index": 0}
    if reason:
        candidate["finishReason"] = reason
    return b"data: " + orjson.dumps({"candidates": [candidate]} | start) + b"\r\n\r\n"


def _choose_reason(reply: Reply) -> str:
    given = next((step.finish for step in reply.steps if isinstance(step, Finish)), "stop")
    return _REASONS.get(given, given)


def _build_usage(request: ModelRequest, reply: Reply, deltas: int) -> dict[str, Any]:
    given = next((step.usage for step in reversed(reply.steps) if isinstance(step, UsageReport)), None)
    read = request.prompt_tokens
    counted = {"promptTokenCount": read, "candidatesTokenCount": deltas, "totalTokenCount": read + deltas}
    cached = {"cachedContentTokenCount": request.cached_tokens} if request.cached_tokens else {}
    return given or counted | cached


def build_whole_reply(request: ModelRequest, reply: Reply) -> Iterator[Action]:
    """Yield the actions for one JSON body, after its silences and cuts."""
    yield Wait(wait_ms=reply.first_delta_delay_ms)
    yield from (step for step in reply.steps if isinstance(step, Wait | Stall | Cut))
    parts: list[Part] = []
    pieces = [part for step in reply.steps for part in _list_parts(step)]
    for part in pieces:
        if parts and "text" in part and part.keys() == parts[-1].keys():
            parts[-1] = part | {"text": parts[-1]["text"] + part["text"]}
        else:
            parts.append(part)
    start = {"modelVersion": request.model, "responseId": token_hex(8)}
    usage = {"usageMetadata": _build_usage(request, reply, len(pieces))}
    yield _encode(start | usage, parts, _choose_reason(reply)).removeprefix(b"data: ").strip()
