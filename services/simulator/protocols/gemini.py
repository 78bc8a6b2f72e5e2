"""Gemini's API: reads a checked request as one of chat completions, and plays steps as frames or one JSON body."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from secrets import token_hex
from typing import Any

import orjson

from services.simulator.model_request import ModelRequest, RequestRefused
from services.simulator.player import Action, RepeatedFrame
from services.simulator.protocols import openai as chat
from services.simulator.protocols.signatures import sign_thinking
from services.simulator.script import (
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

NO_SIGNATURE = "skip_thought_signature_validator"

_ALPHABET = str.maketrans("-_", "+/")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")

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
"""Signature of all calls; independent of the parts of a call that the suite may change."""


def parse_request(body: Any, headers: Mapping[str, str], names: Mapping[str, str]) -> ModelRequest:
    """Check the request.

    Raises:
        RequestRefused: It breaks a rule; important texts are Google's (2026-11).
    """
    if not isinstance(body, dict):
        raise RequestRefused("Invalid JSON payload received.")
    contents = body.get("contents")
    if not isinstance(contents, list) or not contents:
        raise RequestRefused("* GenerateContentRequest.contents: contents is not specified")
    messages = _read_contents(contents)
    instructions = (body.get("systemInstruction") or {}).get("parts") or ()
    if system := "".join(part.get("text", "") for part in instructions):
        messages.insert(0, {"role": "system", "content": system})
    tools = [
        _read_tool(tool) for offered in body.get("tools") or () for tool in offered.get("functionDeclarations", ())
    ]
    config = (body.get("toolConfig") or {}).get("functionCallingConfig") or {}
    asked: dict[str, Any] = {"model": names["model"], "messages": messages, "tools": tools}
    asked |= {"tool_choice": "none" if config.get("mode") == "NONE" else "auto"}
    asked |= {"stream": names["method"].startswith("stream")}
    return replace(chat.parse_request(asked, headers, names), include_usage=True)


def _read_contents(contents: list[Any]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    """Calls of the previous turn that wait for their results."""
    for content in contents:
        parts: Any = content.get("parts") if isinstance(content, dict) else None
        if not parts or content.get("role") not in ("user", "model"):
            raise RequestRefused("Please use a valid role: user, model.")
        responses = [part["functionResponse"] for part in parts if "functionResponse" in part]
        if len(responses) != len(calls):
            raise RequestRefused(
                "Please ensure that the number of function response parts is equal to the number of function call "
                "parts of the function call turn."
            )
        for call, response in zip(calls, responses, strict=True):
            if response.get("name") != call["function"]["name"] or not isinstance(response.get("response"), dict):
                raise RequestRefused("* GenerateContentRequest.contents: function_response is none of the call before")
            output = response["response"].get("output")
            text = output if isinstance(output, str) else orjson.dumps(response["response"]).decode()
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})
        calls = [_read_call(len(messages), at, part) for at, part in enumerate(parts) if "functionCall" in part]
        _check_signatures(parts)
        texts = [_read_part(part) for part in parts if "functionResponse" not in part and "functionCall" not in part]
        if texts or calls:
            role = "assistant" if content["role"] == "model" else "user"
            messages.append({"role": role, "content": texts} | ({"tool_calls": calls} if calls else {}))
    return messages


def _read_call(turn: int, at: int, part: dict[str, Any]) -> dict[str, Any]:
    call = part["functionCall"]
    if not isinstance(call.get("args", {}), dict):
        raise RequestRefused("Invalid value at 'contents.parts.function_call.args'")
    function = {"name": call.get("name"), "arguments": orjson.dumps(call.get("args", {})).decode()}
    return {"id": call.get("id") or f"{turn}.{at}", "type": "function", "function": function}


def _check_signatures(parts: list[dict[str, Any]]) -> None:
    called = next((part for part in parts if "functionCall" in part), None)
    if called is not None and not called.get("thoughtSignature"):
        raise RequestRefused("Function call is missing a thought_signature in functionCall parts.")
    for part in parts:
        # Google's own client writes bytes in the other base64 alphabet.
        signature = (part.get("thoughtSignature") or NO_SIGNATURE).translate(_ALPHABET)
        if signature not in (NO_SIGNATURE.translate(_ALPHABET), sign_thinking("")):
            raise RequestRefused("Thought signature is not valid.")


def _read_part(part: Any) -> dict[str, Any]:
    if not isinstance(part, dict):
        raise RequestRefused("Invalid value at 'contents.parts'")
    return {"type": "text", "text": part["text"]} if "text" in part else {"type": "file"}


def _read_tool(tool: dict[str, Any]) -> dict[str, Any]:
    if not _NAME.fullmatch(tool.get("name") or ""):
        raise RequestRefused("Invalid function name. Must start with a letter or an underscore.")
    return {"type": "function", "function": tool | {"parameters": tool.get("parametersJsonSchema")}}


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
