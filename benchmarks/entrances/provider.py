"""A provider that stamps each delta with its due time: `python -m benchmarks.entrances.provider`

It speaks chat completions over HTTP/1.1. The model name selects the answer: `paced-20x5ms` sends 20 deltas 5 ms
apart, `silent` sends nothing. If the request has tools, the first two turns end with a call of the first tool.
Prints its URL; GET of any path returns the number of open streams.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable
from typing import Any, cast

import httptools
import uvloop

MODEL = re.compile(r"paced-(\d+)x(\d+)ms")
TOOL_TURNS = 2

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNK = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}


def _make_frame(delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return b"data: " + json.dumps(CHUNK | {"choices": [choice]}).encode() + b"\n\n"


def _make_call(name: str, turn: int) -> dict[str, Any]:
    function = {"name": name, "arguments": '{"city": "Paris"}'}
    return {"tool_calls": [{"index": 0, "id": f"call_{turn}", "type": "function", "function": function}]}


BEFORE, AFTER = _make_frame({"content": "@@ "}).split(b"@@")
USAGE = {"prompt_tokens": 10, "completion_tokens": 20, "total_tokens": 30}
END = b"data: " + json.dumps(CHUNK | {"choices": [], "usage": USAGE}).encode() + b"\n\ndata: [DONE]\n\n"


class Connection(asyncio.Protocol):
    """One client; the `on_…` methods are httptools' callbacks."""

    open_streams = 0

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._is_streaming = False
        self._start_request()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are not subclasses

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._end_stream()

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        if self._parser.get_method() == b"POST":
            self._begin_stream(json.loads(self._body))
        else:
            self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n%6d" % Connection.open_streams)
        self._loop.call_soon(self._start_request)

    def _start_request(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._body = b""

    def _begin_stream(self, request: dict[str, Any]) -> None:
        self._is_streaming = True
        Connection.open_streams += 1
        self._transport.write(HEAD)
        match = MODEL.fullmatch(request["model"])
        if match is None:
            return
        turn = sum(message["role"] == "tool" for message in request["messages"])
        tools = request.get("tools")
        self._tail = _make_frame({}, "stop") + END
        if tools and turn < TOOL_TURNS:
            name = tools[0]["function"]["name"]
            self._tail = _make_frame(_make_call(name, turn)) + _make_frame({}, "tool_calls") + END
        self._deltas, self._pace_s = int(match[1]), int(match[2]) / 1000
        self._started_s = self._loop.time()
        self._sent = 0
        self._send_due()

    def _send_due(self) -> None:
        frame = b"%s@%d@%s" % (BEFORE, time.perf_counter_ns(), AFTER)
        self._write(frame)
        self._sent += 1
        if self._sent < self._deltas:
            self._await_next()
            return
        self._write(self._tail)
        self._transport.write(b"0\r\n\r\n")
        self._end_stream()

    def _await_next(self) -> None:
        self._timer = self._loop.call_at(self._started_s + self._sent * self._pace_s, self._send_due)

    def _write(self, data: bytes) -> None:
        self._transport.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _end_stream(self) -> None:
        if self._is_streaming:
            self._is_streaming = False
            Connection.open_streams -= 1


async def listen(make: Callable[[], Connection] = Connection) -> tuple[asyncio.Server, str]:
    """Return the server and its base URL."""
    server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0, backlog=2000)
    return server, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


async def serve() -> None:
    server, base_url = await listen()
    print(base_url, flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve())
