"""Bedrock's Converse: reads a checked request as one of chat completions, and plays steps as events or one JSON body.

Events are messages of AWS's event streams (https://docs.aws.amazon.com/transcribe/latest/dg/event-stream.html).
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
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

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_DOCUMENT_NAME = re.compile(r"(?!.*\s\s)[A-Za-z0-9\s()\[\]-]{1,200}")

_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "content_filtered",
}
"""Converse's names of the reasons that scripts share with other protocols; its own pass unchanged."""

Piece = dict[str, Any]

STREAM_TYPE = "application/vnd.amazon.eventstream"

_STRING = 7


def parse_request(body: Any, headers: Mapping[str, str], names: Mapping[str, str]) -> ModelRequest:
    """Check the request.

    Raises:
        RequestRefused: It breaks a rule; important texts are AWS's (2026-11).
    """
    if not isinstance(body, dict):
        raise RequestRefused("The request body is not valid JSON.")
    turns = body.get("messages")
    if not isinstance(turns, list) or not turns:
        raise RequestRefused("A conversation must start with a user message.")
    messages = _read_turns(turns)
    tools = [_read_tool(tool) for tool in (body.get("toolConfig") or {}).get("tools", ()) if "toolSpec" in tool]
    if not tools and any(message.get("tool_calls") for message in messages):
        raise RequestRefused("The toolConfig field must be defined when using toolUse and toolResult content blocks.")
    if system := "".join(block.get("text", "") for block in body.get("system") or ()):
        messages.insert(0, {"role": "system", "content": system})
    asked: dict[str, Any] = {"model": names["model"], "messages": messages, "tools": tools}
    asked |= {"stream": names["method"] == "converse-stream"}
    return replace(chat.parse_request(asked, headers, names), include_usage=True)


def _read_turns(turns: list[Any]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    names: list[str] = []
    for at, turn in enumerate(turns):
        if not isinstance(turn, dict) or turn.get("role") != ("assistant" if at % 2 else "user"):
            raise RequestRefused("A conversation must alternate between user and assistant roles.")
        if not (blocks := turn.get("content")):
            raise RequestRefused(f"The content field in the Message object at messages.{at} is empty.")
        names += [block["document"]["name"].lower() for block in blocks if "document" in block]
        if len(names) != len({*names}):
            raise RequestRefused("Messages can't contain duplicate document names. Rename the document and retry.")
        calls = [_read_call(block["toolUse"]) for block in blocks if "toolUse" in block]
        for block in blocks:
            if "toolResult" in block:
                result = block["toolResult"]
                parts = [_read_part(part) for part in result["content"]]
                messages.append({"role": "tool", "tool_call_id": result["toolUseId"], "content": parts})
        parts = [_read_part(block) for block in blocks if not block.keys() & {"toolUse", "toolResult", "cachePoint"}]
        if any(block.keys() & {"document"} for block in blocks) and not any("text" in block for block in blocks):
            raise RequestRefused("A text block must be included when a document is.")
        if parts or calls:
            messages.append({"role": turn["role"], "content": parts} | ({"tool_calls": calls} if calls else {}))
    return messages


def _read_call(call: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(call.get("input"), dict):
        raise RequestRefused("The value at toolUse.input must be an object.")
    function = {"name": call.get("name"), "arguments": orjson.dumps(call["input"]).decode()}
    return {"id": call.get("toolUseId"), "type": "function", "function": function}


def _read_part(block: Any) -> dict[str, Any]:
    if not isinstance(block, dict) or len(block) != 1:
        raise RequestRefused("Unknown parameter in a content block.")
    if "text" in block:
        if not block["text"].strip():
            raise RequestRefused("The text field in the ContentBlock object is blank.")
        return {"type": "text", "text": block["text"]}
    if "document" in block and not _DOCUMENT_NAME.fullmatch(block["document"]["name"]):
        raise RequestRefused("The document file name can only contain alphanumeric characters.")
    thought = (block.get("reasoningContent") or {}).get("reasoningText")
    if thought is not None and thought.get("signature") != sign_thinking(thought["text"]):
        raise RequestRefused("Invalid `signature` in `thinking` block")
    return {"type": "file"}


def _read_tool(tool: dict[str, Any]) -> dict[str, Any]:
    spec = tool["toolSpec"]
    if not _NAME.fullmatch(spec.get("name") or "") or spec.get("description") == "":
        raise RequestRefused("Value at 'toolConfig.tools.1.member.toolSpec' failed to satisfy constraint.")
    return {"type": "function", "function": spec | {"parameters": spec["inputSchema"]["json"]}}


def build_error(message: str, _status: int) -> dict[str, Any]:
    return {"message": message}


def stream_reply(request: ModelRequest, reply: Reply, *, pace_ms: float) -> Iterator[Action]:
    """Yield the actions that stream `reply`, with `pace_ms` before each delta unless the reply has its own."""
    pace = Wait(wait_ms=pace_ms if reply.pace_ms is None else reply.pace_ms)
    if reply.opening:
        yield encode_event("messageStart", role="assistant")
    yield Wait(wait_ms=reply.first_delta_delay_ms)
    stream = _BlockStream(pace)
    for step in reply.steps:
        yield from stream.play_step(step)
        if isinstance(step, End | Cut):
            return
    yield from stream.close_block()
    yield encode_event("messageStop", stopReason=_choose_reason(reply))
    yield encode_event("metadata", usage=_build_usage(request, reply, stream.deltas), metrics={"latencyMs": 1})


class _BlockStream:
    def __init__(self, pace: Wait) -> None:
        self._pace = pace
        self._index = -1
        self._kind = ""
        self._thought = ""
        self.deltas = 0

    def play_step(self, step: Step) -> Iterator[Action]:
        match step:
            case Repeat(repeat=text, times=times):
                yield from self._open_block("text")
                self.deltas += times
                yield RepeatedFrame(self._encode({"text": text}), times, self._pace.wait_ms)
            case Content(content=texts):
                yield from self._open_block("text")
                yield from self._send([{"text": text} for text in texts])
            case Reasoning(reasoning=texts):
                yield from self._open_block("reasoning")
                self._thought += "".join(texts)
                yield from self._send([{"reasoningContent": {"text": text}} for text in texts])
            case ToolCall():
                yield from self.close_block()
                yield from self._open_block("toolUse")
                self.deltas += 1
                start = {"toolUse": {"toolUseId": step.id, "name": step.tool_call}}
                yield encode_event("contentBlockStart", contentBlockIndex=self._index, start=start)
                yield from self._send([{"toolUse": {"input": text}} for text in step.arguments])
            case Frame(frame=frame):
                name = str(frame.get("exception", "internalServerException"))
                yield encode_message({":exception-type": name, ":message-type": "exception"}, frame)
            case Raw(raw=texts):
                yield from (text.encode("latin-1") for text in texts)
            case Finish() | UsageReport():
                pass  # sent in the last events
            case Wait() | Stall() | Cut() | End():
                yield step
            case _:
                raise AssertionError(f"{type(step).__name__} is answered before a stream begins")

    def _open_block(self, kind: str) -> Iterator[Action]:
        if self._kind != kind:
            yield from self.close_block()
            self._index += 1
            self._kind = kind

    def _encode(self, delta: Piece) -> bytes:
        return encode_event("contentBlockDelta", contentBlockIndex=self._index, delta=delta)

    def _send(self, pieces: list[Piece]) -> Iterator[Action]:
        for piece in pieces:
            yield self._pace
            self.deltas += 1
            yield self._encode(piece)

    def close_block(self) -> Iterator[Action]:
        """End the open block, with a signature if it is a thought."""
        if self._kind == "reasoning":
            yield self._encode({"reasoningContent": {"signature": sign_thinking(self._thought)}})
            self._thought = ""
        if self._kind:
            yield encode_event("contentBlockStop", contentBlockIndex=self._index)
        self._kind = ""


def _choose_reason(reply: Reply) -> str:
    given = next((step.finish for step in reply.steps if isinstance(step, Finish)), None)
    has_calls = any(isinstance(step, ToolCall) for step in reply.steps)
    word = given or ("tool_calls" if has_calls else "stop")
    return _REASONS.get(word, word)


def _build_usage(request: ModelRequest, reply: Reply, deltas: int) -> dict[str, Any]:
    given = next((step.usage for step in reversed(reply.steps) if isinstance(step, UsageReport)), None)
    read = request.prompt_tokens
    return given or {"inputTokens": read, "outputTokens": deltas, "totalTokens": read + deltas}


def build_whole_reply(request: ModelRequest, reply: Reply) -> Iterator[Action]:
    """Yield the actions for one JSON body, after its silences and cuts."""
    yield Wait(wait_ms=reply.first_delta_delay_ms)
    yield from (step for step in reply.steps if isinstance(step, Wait | Stall | Cut))
    blocks: list[Piece] = []
    deltas = 0
    for step in reply.steps:
        match step:
            case Content(content=texts):
                blocks.append({"text": "".join(texts)})
            case Reasoning(reasoning=texts):
                thought = "".join(texts)
                text = {"text": thought, "signature": sign_thinking(thought)}
                blocks.append({"reasoningContent": {"reasoningText": text}})
            case ToolCall(arguments=texts):
                arguments = orjson.loads("".join(texts) or "{}")
                blocks.append({"toolUse": {"toolUseId": step.id, "name": step.tool_call, "input": arguments}})
                deltas += 1
            case _:
                continue
        deltas += len(texts)
    message = {"role": "assistant", "content": blocks}
    ends = {"stopReason": _choose_reason(reply), "usage": _build_usage(request, reply, deltas)}
    yield orjson.dumps({"output": {"message": message}, "metrics": {"latencyMs": 1}} | ends)


def encode_event(name: str, **payload: Any) -> bytes:
    return encode_message({":event-type": name, ":message-type": "event"}, payload)


def encode_message(headers: dict[str, str], payload: dict[str, Any]) -> bytes:
    fields = headers | {":content-type": "application/json"}
    head = b"".join(_encode_header(name, value) for name, value in fields.items())
    data = orjson.dumps(payload)
    prelude = struct.pack("!II", 16 + len(head) + len(data), len(head))
    message = prelude + struct.pack("!I", zlib.crc32(prelude)) + head + data
    return message + struct.pack("!I", zlib.crc32(message))


def _encode_header(name: str, value: str) -> bytes:
    key, text = name.encode(), value.encode()
    return bytes((len(key),)) + key + struct.pack("!BH", _STRING, len(text)) + text
