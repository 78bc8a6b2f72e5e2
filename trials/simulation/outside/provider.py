"""A model provider for the real gateway: HTTP/1.1 in, chat completions as server-sent events out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextvars import Context
from typing import TYPE_CHECKING, Any

from headrace.v1 import llm_pb2
from trials.simulation.outside.answers import choose_answer
from trials.simulation.plan import GATEWAY

if TYPE_CHECKING:
    from trials.simulation.outside.outside import Outside

HEAD_END = b"\r\n\r\n"

STREAM = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
    b"Connection: keep-alive\r\n\r\n"
)
BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n"
    b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
)

FAULTS = ("error", "busy", "stall", "cut", "error in stream")


class Provider(asyncio.Protocol):
    """One connection, which answers one request after another."""

    def __init__(self, outside: Outside) -> None:
        self._outside = outside
        self._given = b""
        self._answering: asyncio.Task[None] | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._given += data
        head, separator, rest = self._given.partition(HEAD_END)
        if not separator:
            return
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        size = int(fields[b"content-length"])
        if len(rest) >= size:
            self._given = rest[size:]
            answer = self._answer(json.loads(rest[:size]))
            self._answering = asyncio.get_running_loop().create_task(answer, context=Context())

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answering is not None:
            self._answering.cancel()

    async def _answer(self, body: dict[str, Any]) -> None:
        outside, random = self._outside, self._outside.random
        request = read_request(body)
        outside.check_request(request)
        frames = [*make_frames(choose_answer(request, random))]
        for number, frame in enumerate(frames):
            await asyncio.sleep(random.uniform(*outside.delay_s))
            # Decided before each frame, so that faults hit calls in progress.
            if random.random() * len(frames) < outside.model_fault and await self._fail(number):
                return
            if number == 0:
                self._transport.write(STREAM)
            self._write(frame)
        self._transport.write(b"0\r\n\r\n")

    async def _fail(self, number: int) -> bool:
        """Fail before the frame; return whether this ends the answer."""
        outside = self._outside
        fault, when = outside.random.choice(FAULTS), "before" if number == 0 else "after"
        outside.story.tell(f"provider {fault} {when} its first delta", count=f"provider {fault} {when} first delta")
        outside.story.bite("model", GATEWAY)
        if fault == "stall":
            await asyncio.sleep(outside.random.choice((5.0, 60.0)))
            return False
        if fault == "busy" and number == 0:
            self._transport.write(BUSY)
        elif fault in ("error", "error in stream") and number:
            data = b"nonsense" if fault == "error" else b'{"error":{"message":"sorry","type":"server_error"}}'
            self._write(b"data: " + data + b"\n\n")
            self._transport.write(b"0\r\n\r\n")
        else:
            self._transport.abort()
        return True

    def _write(self, frame: bytes) -> None:
        self._transport.write(b"%x\r\n%s\r\n" % (len(frame), frame))


def read_request(body: dict[str, Any]) -> llm_pb2.ChatRequest:
    """Return the request parsed from the gateway's JSON."""
    limit = body.get("max_completion_tokens", body.get("max_tokens"))
    request = llm_pb2.ChatRequest(model=body["model"], max_tokens=limit)
    for given in body["messages"]:
        message = request.messages.add(role=given["role"])
        content = given.get("content") or ""
        parts = [content] if isinstance(content, str) else [part.get("text", "") for part in content]
        for text in filter(None, parts):
            message.content.add(text=text)
        for call in given.get("tool_calls", ()):
            function = call["function"]
            message.tool_calls.add(id=call["id"], name=function["name"], arguments=function["arguments"])
        if "tool_call_id" in given:
            message.tool_call_id = given["tool_call_id"]
    for tool in body.get("tools", ()):
        request.tools.add(name=tool["function"]["name"])
    choice = body.get("tool_choice", "auto")
    request.tool_choice = choice if isinstance(choice, str) else choice["function"]["name"]
    if any("<summary>" in part.text for part in request.messages[-1].content):
        request.stage = "compact"
    return request


def make_frames(deltas: list[llm_pb2.LlmDelta]) -> Iterator[bytes]:
    usage: bytes = b""
    for delta in deltas:
        match delta.WhichOneof("delta"):
            case "reasoning":
                yield _frame({"reasoning_content": delta.reasoning})
            case "content":
                yield _frame({"content": delta.content})
            case "tool_call":
                yield _frame({"tool_calls": [_describe_call(delta.tool_call)]})
            case "usage":
                counts = {"prompt_tokens": 10, "completion_tokens": delta.usage.output_tokens}
                usage = _write({"choices": [], "usage": counts})
            case _:
                yield _frame({}, finish_reason=delta.finish.reason)
    yield usage
    yield b"data: [DONE]\n\n"


def _describe_call(call: llm_pb2.ToolCallDelta) -> dict[str, Any]:
    named = {"id": call.id, "type": "function"} if call.id else {}
    function = {"arguments": call.arguments} | ({"name": call.name} if call.name else {})
    return {"index": call.index, "function": function} | named


def _frame(delta: dict[str, Any], **fields: Any) -> bytes:
    return _write({"choices": [{"index": 0, "delta": delta} | fields]})


def _write(frame: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps({"id": "c", "object": "chat.completion.chunk"} | frame).encode() + b"\n\n"
