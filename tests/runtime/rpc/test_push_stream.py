"""Messages pushed into responses, and received from calls, over both transports."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest

from headrace.errors import Overloaded
from headrace.v1 import llm_pb2, llm_pb2_grpc
from services.runtime.process.config import ServerSettings
from services.runtime.process.transport import TRANSPORTS, VARIABLE
from services.runtime.rpc.channels import open_channel
from services.runtime.rpc.push_stream import QUEUE_MAX, opening_sink, pipe_messages, push_messages
from services.runtime.rpc.server import GrpcService, serving_grpc
from tests.support.logged import Logged
from tests.support.scripted_llm import NAME, REQUEST, SILENCE_S, TEST_TIMEOUT_S
from tests.support.timing import until_still, within

pytestmark = pytest.mark.usefixtures("quiet")

METHOD = f"/{NAME}/StreamChat"

UNREAD_MAX = QUEUE_MAX + 64
"""Of messages of 16 KiB that nobody reads: those in the queue, and those in both windows (grpcio's are larger)."""

LARGE = "x" * 16_000


@pytest.fixture(params=TRANSPORTS, autouse=True)
def transport(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(VARIABLE, request.param)
    return request.param


def delta(text: str) -> bytes:
    return llm_pb2.LlmDelta(content=text).SerializeToString()


# Its stream is given whole messages as bytes, which the stubs do not know.
_Servicer: Any = llm_pb2_grpc.LlmServiceServicer


@dataclass
class Pushing(_Servicer):
    """Sends texts through its sink, each at once while the caller keeps up; then ends, fails, or stays open."""

    texts: list[str] = field(default_factory=list[str])
    then: Exception | float | None = None
    sent: int = 0
    left: asyncio.Event = field(default_factory=asyncio.Event)

    async def StreamChat(self, request: Any, context: Any) -> Any:
        try:
            async with opening_sink(context) as out:
                for text in self.texts:
                    keeps_up = out.send(delta(text))
                    self.sent += 1
                    if not keeps_up:
                        await out.wait_until_drained()
                if isinstance(self.then, Exception):
                    raise self.then
                await asyncio.sleep(self.then or 0)
            return self.sent
        finally:
            self.left.set()


@asynccontextmanager
async def calling(pushing: Pushing) -> AsyncGenerator[Callable[[], Any]]:
    """Yield a function that makes a call whose responses are bytes."""
    add: Any = llm_pb2_grpc.add_LlmServiceServicer_to_server
    settings = ServerSettings(listen="127.0.0.1:0", drain_s=0)
    async with (
        asyncio.timeout(TEST_TIMEOUT_S),
        serving_grpc(settings, [GrpcService(NAME, pushing, add)]) as running,
        open_channel(running.addresses[0]) as channel,
    ):
        rpc: Any = channel.unary_stream(METHOD, llm_pb2.ChatRequest.SerializeToString)
        yield lambda: rpc(REQUEST)


@pytest.mark.parametrize("count", [0, 1, 3, QUEUE_MAX * 5])
async def test_all_messages_arrive_in_order(count: int, logged: Logged) -> None:
    texts = [str(number) for number in range(count)]
    received: list[bytes] = []
    async with calling(Pushing(texts)) as call:
        await push_messages(call(), received.append)
    assert received == [delta(text) for text in texts]
    assert logged.done["replies"] == count


@pytest.mark.parametrize("texts", [[], ["a", "b"]])
async def test_an_error_arrives_after_the_preceding_messages(texts: list[str]) -> None:
    received: list[bytes] = []
    async with calling(Pushing(texts, Overloaded("busy"))) as call:
        with pytest.raises(Overloaded, match=r"^busy$"):
            await push_messages(call(), received.append)
    assert received == [delta(text) for text in texts]


async def test_a_reader_that_cancels_ends_the_sender() -> None:
    pushing, first = Pushing(["a"], SILENCE_S), asyncio.Event()
    async with calling(pushing) as call:
        pouring = asyncio.create_task(push_messages(call(), lambda _: first.set()))
        await first.wait()
        pouring.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pouring
        async with within(0.5):
            await pushing.left.wait()


async def test_a_reader_that_does_not_read_stops_the_sender_at_a_bounded_size(transport: str) -> None:
    pushing = Pushing([LARGE] * 1000)
    async with calling(pushing) as call:
        reading = call()
        await reading.read()
        await until_still(lambda: pushing.sent)
        assert pushing.sent < (UNREAD_MAX if transport == "h2" else 1000)
        reading.cancel()
        async with within(0.5):
            await pushing.left.wait()


@pytest.mark.parametrize("fail_at", [0, 2])
async def test_an_error_of_the_receiving_function_ends_the_call_and_is_raised(fail_at: int) -> None:
    pushing = Pushing(["a"] * 5, SILENCE_S)
    received: list[bytes] = []

    def take(message: bytes) -> None:
        if len(received) == fail_at:
            raise ZeroDivisionError
        received.append(message)

    async with calling(pushing) as call:
        with pytest.raises(ZeroDivisionError):
            await push_messages(call(), take)
        async with within(0.5):
            await pushing.left.wait()
    assert len(received) == fail_at


class Bucket:
    """A sink that is full after each `size` messages until it has `room`."""

    def __init__(self, size: int) -> None:
        self.seen: list[bytes] = []
        self.room = asyncio.Event()
        self._size = size

    def send(self, message: bytes) -> bool:
        self.seen.append(message)
        return len(self.seen) % self._size != 0

    async def wait_until_drained(self) -> None:
        await asyncio.sleep(0)
        await self.room.wait()


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
@pytest.mark.parametrize("end", [None, Overloaded("busy")])
async def test_messages_are_piped_in_order_into_a_sink_that_is_often_full(size: int, end: Overloaded | None) -> None:
    texts = [str(number) for number in range(100)]
    bucket = Bucket(size)
    bucket.room.set()
    async with calling(Pushing(texts, end)) as call:
        with pytest.raises(Overloaded) if end else nullcontext():
            await pipe_messages(call(), bucket)
    assert bucket.seen == [delta(text) for text in texts]


async def test_a_full_sink_stops_the_sender_at_a_bounded_size_until_it_has_room(transport: str) -> None:
    pushing, bucket = Pushing([LARGE] * 1000), Bucket(10)
    async with calling(pushing) as call:
        piping = asyncio.create_task(pipe_messages(call(), bucket))
        await until_still(lambda: pushing.sent)
        assert len(bucket.seen) == 10
        assert pushing.sent < (UNREAD_MAX if transport == "h2" else 1000)
        bucket.room.set()
        await piping
    assert len(bucket.seen) == 1000


async def test_a_pipe_cancelled_while_its_sink_is_full_ends_the_sender() -> None:
    pushing = Pushing([LARGE] * 1000)
    async with calling(pushing) as call:
        piping = asyncio.create_task(pipe_messages(call(), Bucket(10)))
        await until_still(lambda: pushing.sent)
        piping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await piping
        async with within(0.5):
            await pushing.left.wait()
