"""A real gateway on port 0 before a real simulator: `asking(script)` gives both."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import orjson
import pytest
import uvloop

from headrace.errors import HeadraceError
from headrace.streams import reading
from headrace.v1 import llm_pb2, llm_pb2_grpc
from services.llm_gateway.config import Config
from services.llm_gateway.server import gateway
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.channels import open_channel
from services.simulator.server import Simulator, simulator
from tests.support.timing import ScriptedClockLoop

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

TEST_TIMEOUT_S = 600.0

ON_BOTH_LOOPS = {"test_back_pressure", "test_interaction_log", "test_leaving", "http"}
"""Files and folders. What a transport does when it is paused or closed, and in which context it calls back, is the
loop's: these run on uvloop too, as in production."""

SPARE: dict[str, Any] = {"key": "spare", "models": [{"name": "sim-2"}]}


@dataclass(frozen=True, slots=True)
class Heard:
    """The deltas and the error of a whole stream."""

    deltas: list[llm_pb2.LlmDelta]
    error: HeadraceError | None

    @property
    def kinds(self) -> list[str]:
        return [delta.WhichOneof("delta") or "" for delta in self.deltas]

    @property
    def content(self) -> list[str]:
        return [delta.content for delta in self.deltas if delta.WhichOneof("delta") == "content"]

    @property
    def calls(self) -> list[llm_pb2.ToolCallDelta]:
        return [delta.tool_call for delta in self.deltas if delta.WhichOneof("delta") == "tool_call"]

    @property
    def usage(self) -> Any:
        return next(delta.usage for delta in self.deltas if delta.WhichOneof("delta") == "usage")


@dataclass(frozen=True, slots=True)
class Gateway:
    """A running gateway, its stub, and the simulator behind it."""

    llm: llm_pb2_grpc.LlmServiceAsyncStub
    sim: Simulator
    provider_file: Path
    env: dict[str, str] = field(default_factory=dict[str, str])

    def request(self, *messages: llm_pb2.Message, **fields: Any) -> llm_pb2.ChatRequest:
        """A request to the simulator; without messages, with one of a user."""
        given: dict[str, Any] = {"provider_key": "sim", "model": "sim-1"} | fields
        return llm_pb2.ChatRequest(messages=messages or [text_message("user", "hello")], **given)

    async def hear(self, *messages: llm_pb2.Message, **fields: Any) -> Heard:
        """The whole stream, with the error that ended it."""
        deltas: list[llm_pb2.LlmDelta] = []
        try:
            async with reading(self.llm.StreamChat(self.request(*messages, **fields), timeout=150)) as replies:
                async for delta in replies:
                    deltas.append(delta)
        except HeadraceError as error:
            return Heard(deltas, error)
        return Heard(deltas, None)


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    both = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    if item.path.stem == "test_quota" and "asking" not in getattr(item, "fixturenames", ()):
        return {"scripted clock": ScriptedClockLoop}
    is_on_both = {item.path.stem, item.path.parent.name} & ON_BOTH_LOOPS
    return both if is_on_both else {"asyncio": asyncio.new_event_loop}


Asking: TypeAlias = "Callable[..., AbstractAsyncContextManager[Gateway]]"


def text_message(role: str, text: str, **fields: Any) -> llm_pb2.Message:
    return llm_pb2.Message(role=role, content=[llm_pb2.ContentPart(text=text)], **fields)


def provider_entry(base_url: str, **fields: Any) -> dict[str, Any]:
    model = {"name": "sim-1", "capabilities": ["tools", "reasoning", "vision"], "contextWindow": 1000}
    models = [model, {"name": "idle"}, {"name": "bench"}]
    # Most tests are about one attempt, and about bodies without marks; others say so.
    calm: dict[str, Any] = {"retry": {"maxAttempts": 1}, "promptCache": False}
    return {"key": "sim", "protocol": "openai", "baseUrl": base_url, "models": models} | calm | fields


def http_answer(status: int, body: bytes = b"", **headers: str) -> bytes:
    """A whole response, as `answering` sends it; `retry_after="1"` is a Retry-After header."""
    fields = {"Content-Type": "text/event-stream", "Content-Length": str(len(body)), "Connection": "close"}
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"HTTP/1.1 {status} Scripted", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
    return "\r\n".join(lines).encode() + body


HELLO = http_answer(
    200, b'data: {"choices":[{"delta":{"content":"hello"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)


@dataclass(slots=True)
class Answering:
    """A provider that gives its answers in turn, one a connection, and the last for ever."""

    base_url: str = ""
    asked: list[bytes] = field(default_factory=list[bytes])
    """The head of each request."""


@asynccontextmanager
async def answering(*answers: bytes) -> AsyncGenerator[Answering]:
    """Scripted bytes on a real socket, for what the simulator does not do: one thing first and another later."""
    provider = Answering()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        provider.asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answers[min(len(provider.asked), len(answers)) - 1])
        await writer.drain()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        provider.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        yield provider


@asynccontextmanager
async def raw_provider(answer: bytes) -> AsyncGenerator[tuple[str, asyncio.Event]]:
    """A base URL where one connection is answered with these bytes, whatever it asks; the event says that it ended."""
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


@pytest.fixture
def asking(tmp_path: Path) -> Asking:
    """A gateway before a simulator that plays a script; further fields go into the provider file's entry.

    `spare` are the fields of a second provider, the model sim-2 at the same simulator.
    """

    @asynccontextmanager
    async def start(
        script: object = (), *, spare: dict[str, Any] | None = None, **fields: Any
    ) -> AsyncGenerator[Gateway]:
        env: dict[str, str] = {}
        config = Config(server=ServerSettings(listen="127.0.0.1:0", drain_s=0.2), config_dir=tmp_path)
        async with asyncio.timeout(TEST_TIMEOUT_S), simulator(script) as sim:
            path = tmp_path / "providers.json"
            entries = [provider_entry(sim.base_url, **fields)]
            if spare is not None:
                entries.append(provider_entry(sim.base_url, **SPARE | spare))
            path.write_bytes(orjson.dumps({"providers": entries}))
            async with gateway(config, env) as running, open_channel(running.addresses[0]) as channel:
                yield Gateway(llm_pb2_grpc.LlmServiceStub(channel), sim, path, env)

    return start
