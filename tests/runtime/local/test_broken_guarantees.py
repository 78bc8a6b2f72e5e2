"""Each guarantee of an in-memory call is broken on purpose, and its case must detect it; tests/runtime/http2 has all
cases.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest

from headrace.v1 import llm_pb2
from services.runtime.calls.metadata import TIMEOUT
from services.runtime.http2.limits import WINDOW_BYTES
from services.runtime.local.network import NETWORK, LocalNetwork
from services.runtime.local.stream import DirectLink
from tests.support.http2.ends import SILENCE_S, connecting, handlers
from tests.support.timing import until_still, within

HEARD_S = 1.0
PIECE = b"x" * 1000
CASE_S = 5.0
"""The time after which a case that waits counts as failed."""

Items = list[tuple[Callable[..., None], tuple[Any, ...]]]


def keep(receive: Callable[..., None], args: tuple[Any, ...], held: Items) -> Items:
    return [(receive, args)]


def lose_cancellation(receive: Callable[..., None], args: tuple[Any, ...], held: Items) -> Items:
    return [] if receive.__name__ == "receive_reset" else [(receive, args)]


def lose_deadline(receive: Callable[..., None], args: tuple[Any, ...], held: Items) -> Items:
    if receive.__name__ == "receive_call":
        stream_id, path, headers, request = args
        args = (stream_id, path, [pair for pair in headers if pair[0] != TIMEOUT], request)
    return [(receive, args)]


def swap_messages(receive: Callable[..., None], args: tuple[Any, ...], held: Items) -> Items:
    if receive.__name__ == "receive_message" and not held:
        held.append((receive, args))
        return []
    items = [(receive, args), *held] if receive.__name__ == "receive_message" else [*held, (receive, args)]
    held.clear()
    return items


def credit_at_once(receive: Callable[..., None], args: tuple[Any, ...], held: Items) -> Items:
    if receive.__name__ != "receive_message":
        return [(receive, args)]
    end = vars(getattr(receive, "__self__"))  # noqa: B009 - a bound method
    target = end.get("_server") or end["_client"]
    return [(receive, args), (target.receive_credit, (args[0], len(args[1]) + 5))]


Break = Callable[[Callable[..., None], tuple[Any, ...], Items], Items]


@dataclass
class BrokenLink:
    link: DirectLink
    change: Break
    held: Items = field(default_factory=list[Any])

    def send(self, receive: Callable[..., None], *args: Any) -> None:
        for item, its in self.change(receive, args, self.held):
            self.link.send(item, *its)


class BrokenNetwork(LocalNetwork):
    def __init__(self, change: Break) -> None:
        super().__init__()
        self._change = change

    def make_link(self, context: Context) -> BrokenLink:
        return BrokenLink(DirectLink(context), self._change)


async def check_cancellation_ends_the_handler() -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def unary(request: bytes, context: Any) -> bytes:
        began.set()
        try:
            await asyncio.sleep(SILENCE_S)
        finally:
            ended.set()
        return b""

    async with connecting("local", "local", handlers(unary=unary)) as caller:
        call = caller.unary(b"")
        await began.wait()
        call.cancel()
        async with within(HEARD_S):
            await ended.wait()


async def check_handler_knows_its_deadline() -> None:
    async def unary(request: bytes, context: Any) -> bytes:
        return repr(context.time_remaining()).encode()

    async with connecting("local", "local", handlers(unary=unary)) as caller:
        assert 50 < float(await caller.unary(b"", timeout=60)) < 61


async def check_order_of_messages() -> None:
    sent = [b"%d" % number for number in range(20)]

    async def stream(request: bytes, context: Any) -> Any:
        for message in sent:
            yield message

    async with connecting("local", "local", handlers(stream=stream)) as caller:
        assert [message async for message in caller.stream(b"")] == sent


async def check_unread_messages_are_bounded() -> None:
    sent = 0

    async def stream(request: bytes, context: Any) -> None:
        nonlocal sent
        while True:
            await context.write(PIECE)
            sent += 1

    async with connecting("local", "local", handlers(stream=stream)) as caller:
        call = caller.stream(b"")
        await call.read()
        assert await until_still(lambda: sent) * len(PIECE) <= WINDOW_BYTES + 2 * len(PIECE)


GUARANTEES: dict[str, tuple[Break, Callable[[], Awaitable[None]]]] = {
    "cancel": (lose_cancellation, check_cancellation_ends_the_handler),
    "deadline": (lose_deadline, check_handler_knows_its_deadline),
    "order": (swap_messages, check_order_of_messages),
    "back-pressure": (credit_at_once, check_unread_messages_are_bounded),
}


@pytest.mark.parametrize("name", GUARANTEES)
async def test_a_broken_guarantee_is_detected(name: str) -> None:
    change, case = GUARANTEES[name]
    NETWORK.set(BrokenNetwork(keep))
    await case()
    NETWORK.set(BrokenNetwork(change))
    with pytest.raises((AssertionError, TimeoutError, ValueError)):
        async with asyncio.timeout(CASE_S):
            await case()


class Shared(bytes):
    """A message that is passed as the object itself."""

    message: llm_pb2.Message


def share(message: llm_pb2.Message) -> bytes:
    shared = Shared(message.SerializeToString())
    shared.message = message
    return shared


def take_shared(data: bytes) -> llm_pb2.Message:
    assert isinstance(data, Shared)
    return data.message


CODECS: dict[str, tuple[Any, Any]] = {
    "copied": (llm_pb2.Message.SerializeToString, llm_pb2.Message.FromString),
    "shared": (share, take_shared),
}


@pytest.mark.parametrize("way", CODECS)
async def test_a_handler_that_changes_its_request_does_not_change_the_callers(way: str) -> None:
    serialize, deserialize = CODECS[way]

    async def unary(request: llm_pb2.Message, context: Any) -> llm_pb2.Message:
        request.role = "changed"
        return request

    def add(server: grpc.aio.Server) -> None:
        method = grpc.unary_unary_rpc_method_handler(unary, deserialize, serialize)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Test", {"unary": method}),))

    async with connecting("local", "local", add) as caller:
        call: Any = caller.channel.unary_unary("/test.Test/unary", serialize, deserialize)
        sent = llm_pb2.Message(role="user")
        answer = await call(sent)
        assert answer.role == "changed"
        assert (sent.role == "user") is (way == "copied")
