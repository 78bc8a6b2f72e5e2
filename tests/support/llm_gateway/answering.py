"""Scripted bytes on a real socket, for what the simulator does not do."""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


def http_answer(status: int, body: bytes = b"", **headers: str) -> bytes:
    """A whole response, as `answering` sends it; `retry_after="1"` is a Retry-After header."""
    fields = {"Content-Type": "text/event-stream", "Content-Length": str(len(body)), "Connection": "close"}
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"HTTP/1.1 {status} Scripted", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
    return "\r\n".join(lines).encode() + body


HELLO = http_answer(
    200, b'data: {"choices":[{"delta":{"content":"hello"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)

HELLOS = {
    "openai": HELLO,
    "anthropic": http_answer(
        200,
        b'data: {"type":"content_block_delta","index":0,"delta":{"text":"hello"}}\n\ndata: {"type":"message_stop"}\n\n',
    ),
    "gemini": http_answer(
        200, b'data: {"candidates":[{"content":{"parts":[{"text":"hello"}]},"finishReason":"STOP"}]}\n\n'
    ),
    "bedrock": http_answer(
        200,
        b'{"output":{"message":{"content":[{"text":"hello"}]}},"stopReason":"end_turn"}',
        Content_Type="application/json",
    ),
}
"""The same answer in each protocol."""


@dataclass(slots=True)
class Answering:
    """A provider that gives its answers in turn, one per connection, repeating the last one."""

    base_url: str = ""
    asked: list[bytes] = field(default_factory=list[bytes])
    """The head and body of each request."""


@asynccontextmanager
async def answering(*answers: bytes) -> AsyncGenerator[Answering]:
    """Run a provider that answers each connection with the next of these bytes, which the simulator cannot do."""
    provider = Answering()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: *(\d+)", head)
        provider.asked.append(head + await reader.readexactly(int(length[1]) if length else 0))
        writer.write(answers[min(len(provider.asked), len(answers)) - 1])
        await writer.drain()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        provider.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        yield provider


@asynccontextmanager
async def raw_provider(answer: bytes) -> AsyncGenerator[tuple[str, asyncio.Event]]:
    """Answer one connection with these bytes; yield the base URL and an event that is set when the connection ends."""
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await reader.read()
        writer.close()
        await writer.wait_closed()
        ended.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", ended
        await ended.wait()
