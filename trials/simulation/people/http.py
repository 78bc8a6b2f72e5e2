"""Users over HTTP: a query or an attach as one request, with its answer read as server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from services.facade.responses.sse import DONE
from trials.simulation.world.definitions import FACADE_HOST

if TYPE_CHECKING:
    from tests.support.order import Event
    from trials.simulation.people.asked import Asked

SILENCE_S = 40.0
"""Time without a heartbeat after which a reader considers the connection dead."""

PORT = 80


class Refused(Exception):
    """The facade answered with an error."""

    def __init__(self, reason: str, *, is_passing: bool) -> None:
        super().__init__(reason)
        self.reason, self.is_passing = reason, is_passing


async def read_over_http(asked: Asked) -> AsyncGenerator[Event]:
    """Yield the events of a query, or of its run after the last event read.

    Raises:
        Refused: The answer is an error.
        OSError, EOFError, TimeoutError: The connection has ended, or was silent for too long.
    """
    async with asyncio.timeout(SILENCE_S):
        reader, writer = await asyncio.open_connection(FACADE_HOST, PORT)
    try:
        writer.write(_make_request(asked))
        async with asyncio.timeout(SILENCE_S):
            head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200 "):
            raise await _read_refusal(reader, head)
        given = b""
        while True:
            async with asyncio.timeout(SILENCE_S):
                given += await _read_chunk(reader)
            *frames, given = given.split(b"\n\n")
            for frame in frames:
                if frame + b"\n\n" == DONE:
                    return
                if frame.startswith(b"id: "):
                    yield _judge_begun(asked, _parse_event(frame))
    finally:
        writer.transport.abort()


def _make_request(asked: Asked) -> bytes:
    if asked.run_id:
        lines = [f"GET /api/attach?runId={asked.run_id} HTTP/1.1", f"Last-Event-ID: {asked.events[-1]['seq']}"]
        body = b""
    else:
        lines = ["POST /api/query HTTP/1.1", "Content-Type: application/json"]
        query: dict[str, Any] = {"message": asked.message, "agentKey": asked.agent, "chatId": asked.chat_id}
        query |= {"requestId": asked.request_id} | ({"whenBusy": asked.when_busy} if asked.when_busy else {})
        query |= {"record": True} if asked.is_recorded else {}
        body = json.dumps(query).encode()
    return "\r\n".join([*lines, f"Host: {FACADE_HOST}", f"Content-Length: {len(body)}", "", ""]).encode() + body


async def _read_chunk(reader: asyncio.StreamReader) -> bytes:
    """Read a chunk; EOFError after the last one, which means that the stream was not ended by DONE."""
    size = int(await reader.readuntil(b"\r\n"), 16)
    chunk = await reader.readexactly(size + 2)
    if not size:
        raise EOFError("the answer has ended, and the stream has not")
    return chunk[:-2]


async def _read_refusal(reader: asyncio.StreamReader, head: bytes) -> Refused:
    parts = [line.lower().partition(b":") for line in head.split(b"\r\n")[1:]]
    size = next(int(value) for name, _, value in parts if name == b"content-length")
    async with asyncio.timeout(SILENCE_S):
        error = json.loads(await reader.readexactly(size))["error"]
    return Refused(error["code"], is_passing=error["retriable"])


def _judge_begun(asked: Asked, event: Event) -> Event:
    """Return the event; Refused if the query was refused after the answer had started with a comment."""
    if event["type"] == "run.error" and not asked.run_id:
        raise Refused(event["error"]["code"], is_passing=event["error"].get("retriable", False))
    return event


def _parse_event(frame: bytes) -> Event:
    number, _, rest = frame.partition(b"\n")
    event = json.loads(rest.split(b"data: ", 1)[1])
    if event["seq"] != int(number.removeprefix(b"id: ")):
        raise AssertionError(f"an event has another id than its seq: {frame!r}")
    return event
