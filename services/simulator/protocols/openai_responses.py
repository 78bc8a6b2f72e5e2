"""OpenAI's Responses: reads a checked request as one of chat completions, plays steps as events or one JSON body."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
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

OUTPUT_TOKENS_MIN = 16

_TEXTS = ("input_text", "output_text", "text", "refusal")


_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Reason for an incomplete response, by the finish reasons of scripts."""


def parse_request(body: Any, headers: Mapping[str, str], names: Mapping[str, str]) -> ModelRequest:
    """Check the request.

    Raises:
        RequestRefused: It breaks a rule; important texts are OpenAI's (2026-11).
    """
    if not isinstance(body, dict):
        raise RequestRefused("The request body must be a JSON object.")
    if body.get("max_output_tokens", OUTPUT_TOKENS_MIN) < OUTPUT_TOKENS_MIN:
        raise RequestRefused("Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16.")
    given = body.get("input")
    items: Any = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not isinstance(items, list) or not items:
        raise RequestRefused("Missing required parameter: 'input'.")
    _check_items(items)
    messages = _read_messages(items)
    if instructions := body.get("instructions"):
        messages.insert(0, {"role": "system", "content": instructions})
    asked = {
        "model": body.get("model"),
        "messages": messages,
        "tools": [_read_tool(index, tool) for index, tool in enumerate(body.get("tools") or ())],
        "tool_choice": body.get("tool_choice"),
        "stream": body.get("stream"),
    }
    return replace(chat.parse_request(asked, headers, names), include_usage=True)


def _check_items(items: list[Any]) -> None:
    for index, item in enumerate(items):
        if not isinstance(item, dict) or not (item.get("type") or item.get("role")):
            raise RequestRefused(f"Invalid 'input[{index}]'.")
        if item.get("type") != "reasoning":
            continue
        if "encrypted_content" not in item:
            raise RequestRefused(
                f"Item with id '{item.get('id')}' not found. Items are not persisted when `store` is set to false."
            )
        if item["encrypted_content"] != sign_thinking("".join(part["text"] for part in item["summary"])):
            raise RequestRefused("The encrypted content could not be verified.")
        following: Any = items[index + 1] if index + 1 < len(items) else {}
        if following.get("role") == "user" or following.get("type") in (None, "function_call_output"):
            raise RequestRefused(
                f"Item '{item.get('id')}' of type 'reasoning' was provided without its required following item."
            )


def _read_messages(items: list[Any]) -> list[dict[str, Any]]:
    """Return the items as messages; consecutive items of the model become one."""
    messages: list[dict[str, Any]] = []
    for item in items:
        match item.get("type") or "message":
            case "message":
                content = item.get("content")
                read = content if isinstance(content, str) else [_read_part(part) for part in content or ()]
                messages.append({"role": item["role"], "content": read})
            case "function_call":
                if not messages or messages[-1]["role"] != "assistant":
                    messages.append({"role": "assistant", "content": None})
                function = {"name": item.get("name"), "arguments": item.get("arguments")}
                call = {"id": item.get("call_id"), "type": "function", "function": function}
                messages[-1].setdefault("tool_calls", []).append(call)
            case "function_call_output":
                output = item.get("output")
                read = output if isinstance(output, str) else [_read_part(part) for part in output or ()]
                messages.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": read})
            case _:
                pass
    return messages


def _read_part(part: Any) -> dict[str, Any]:
    if not isinstance(part, dict):
        raise RequestRefused("Invalid 'input': a part of a content must be an object.")
    is_text = part.get("type") in _TEXTS
    return {"type": "text", "text": part.get("text") or part.get("refusal")} if is_text else {"type": "file"}


def _read_tool(index: int, tool: Any) -> dict[str, Any]:
    if not isinstance(tool, dict) or not tool.get("name") or "parameters" not in tool:
        raise RequestRefused(f"Missing required parameter: 'tools[{index}].name'.")
    return {"type": "function", "function": tool}


def stream_reply(request: ModelRequest, reply: Reply, *, pace_ms: float) -> Iterator[Action]:
    """Yield the actions that stream `reply`, with `pace_ms` before each delta unless the reply has its own."""
    stream = _ItemStream(request, Wait(wait_ms=pace_ms if reply.pace_ms is None else reply.pace_ms))
    if reply.opening:
        yield stream.encode("response.created", response=stream.describe("in_progress"))
    yield Wait(wait_ms=reply.first_delta_delay_ms)
    for step in reply.steps:
        yield from stream.play_step(step)
        if isinstance(step, End | Cut):
            return
    yield from stream.close_item()
    yield from stream.end(reply)


class _ItemStream:
    def __init__(self, request: ModelRequest, pace: Wait) -> None:
        self._request = request
        self._pace = pace
        self._id = f"resp_{token_hex(12)}"
        self._number = 0
        self._open: dict[str, Any] | None = None
        self._texts: list[str] = []
        self.output: list[dict[str, Any]] = []
        self.deltas = 0

    def encode(self, kind: str, **fields: Any) -> bytes:
        event = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        return b"event: " + kind.encode() + b"\ndata: " + orjson.dumps(event) + b"\n\n"

    def describe(self, status: str, **fields: Any) -> dict[str, Any]:
        start = {"id": self._id, "object": "response", "created_at": int(time.time()), "model": self._request.model}
        rules = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "error": None}
        return start | rules | {"status": status, "output": self.output, "incomplete_details": None} | fields

    def play_step(self, step: Step) -> Iterator[Action]:
        match step:
            case Content(content=texts):
                yield from self._open_item("message")
                yield from self._send("response.output_text.delta", texts, content_index=0, logprobs=[])
            case Repeat(repeat=text, times=times):
                yield from self._open_item("message")
                self.deltas += times
                self._texts.append(text * times)
                place = self._place() | {"content_index": 0, "logprobs": []}
                data = self.encode("response.output_text.delta", delta=text, **place)
                yield RepeatedFrame(data, times, self._pace.wait_ms)
            case Reasoning(reasoning=texts):
                yield from self._open_item("reasoning")
                yield from self._send("response.reasoning_summary_text.delta", texts, summary_index=0)
            case ToolCall():
                yield from self.close_item()
                self.deltas += 1
                yield from self._open_item("function_call", call_id=step.id, name=step.tool_call, arguments="")
                yield from self._send("response.function_call_arguments.delta", step.arguments)
            case Frame(frame=frame):
                yield b"data: " + orjson.dumps(frame) + b"\n\n"
            case Raw(raw=texts):
                yield from (text.encode("latin-1") for text in texts)
            case Finish() | UsageReport():
                pass  # sent in the last event
            case Wait() | Stall() | Cut() | End():
                yield step
            case _:
                raise AssertionError(f"{type(step).__name__} is answered before a stream begins")

    def _open_item(self, kind: str, **fields: Any) -> Iterator[Action]:
        if self._open is not None and self._open["type"] == kind and kind != "function_call":
            return
        yield from self.close_item()
        names = {"message": "msg", "reasoning": "rs", "function_call": "fc"}
        self._open = {"id": f"{names[kind]}_{token_hex(8)}", "type": kind, **fields}
        if kind == "message":
            self._open |= {"role": "assistant", "content": []}
        elif kind == "reasoning":
            self._open |= {"summary": []}
        yield self.encode(
            "response.output_item.added", output_index=len(self.output), item=self._open | {"status": "in_progress"}
        )
        if kind == "message":
            part = {"type": "output_text", "text": "", "annotations": []}
            yield self.encode("response.content_part.added", part=part, content_index=0, **self._place())
        elif kind == "reasoning":
            part = {"type": "summary_text", "text": ""}
            yield self.encode("response.reasoning_summary_part.added", part=part, summary_index=0, **self._place())

    def _place(self) -> dict[str, Any]:
        assert self._open is not None
        return {"item_id": self._open["id"], "output_index": len(self.output)}

    def _send(self, kind: str, texts: Iterable[str], **fields: Any) -> Iterator[Action]:
        for text in texts:
            yield self._pace
            self.deltas += 1
            self._texts.append(text)
            yield self.encode(kind, delta=text, **self._place(), **fields)

    def close_item(self) -> Iterator[Action]:
        if self._open is None:
            return
        item = fill_item(self._open, "".join(self._texts))
        yield self.encode("response.output_item.done", output_index=len(self.output), item=item)
        self.output.append(item)
        self._open = None
        self._texts.clear()

    def count_usage(self) -> dict[str, Any]:
        read = self._request.prompt_tokens
        cached = {"cached_tokens": self._request.cached_tokens, "cache_write_tokens": 0}
        usage: dict[str, Any] = {"input_tokens": read, "input_tokens_details": cached}
        usage |= {"output_tokens": self.deltas, "output_tokens_details": {"reasoning_tokens": 0}}
        return usage | {"total_tokens": read + self.deltas}

    def end(self, reply: Reply) -> Iterator[Action]:
        response = end_response(self, reply)
        yield self.encode(f"response.{response['status']}", response=response)


def fill_item(item: dict[str, Any], text: str) -> dict[str, Any]:
    """Return the complete item."""
    match item["type"]:
        case "message":
            part: dict[str, Any] = {"type": "output_text", "text": text, "annotations": []}
            return item | {"content": [part], "status": "completed"}
        case "reasoning":
            summary = [{"type": "summary_text", "text": text}]
            return item | {"summary": summary, "encrypted_content": sign_thinking(text)}
        case _:
            return item | {"arguments": text, "status": "completed"}


def end_response(stream: _ItemStream, reply: Reply) -> dict[str, Any]:
    finish = next((step.finish for step in reply.steps if isinstance(step, Finish)), "stop")
    given = next((step.usage for step in reversed(reply.steps) if isinstance(step, UsageReport)), None)
    usage = given or stream.count_usage()
    if finish not in _REASONS:
        return stream.describe("completed", usage=usage)
    return stream.describe("incomplete", usage=usage, incomplete_details={"reason": _REASONS[finish]})


def build_whole_reply(request: ModelRequest, reply: Reply) -> Iterator[Action]:
    """Yield the actions for one JSON body, after its silences and cuts."""
    yield Wait(wait_ms=reply.first_delta_delay_ms)
    yield from (step for step in reply.steps if isinstance(step, Wait | Stall | Cut))
    stream = _ItemStream(request, Wait(wait_ms=0))
    for step in reply.steps:
        if isinstance(step, Content | Reasoning | ToolCall):
            for _ in stream.play_step(step):
                pass
    for _ in stream.close_item():
        pass
    yield orjson.dumps(end_response(stream, reply))
