"""Each promise of a call, broken on purpose in memory, is missed by the cases of tests/runtime/http2."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest

from headrace.v1 import llm_pb2
from services.runtime.calls.metadata import TIMEOUT
from services.runtime.local.network import NETWORK, LocalNetwork
from services.runtime.local.stream import DirectLink
from tests.runtime.http2 import test_calls_cancelled, test_streams, test_streams_slow
from tests.support.http2.ends import connecting

CASE_S = 5.0
"""After which a case that waits for what was broken counts as failed."""

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


CASES: dict[str, tuple[Break, Callable[[], Awaitable[None]]]] = {
    "cancel": (
        lose_cancellation,
        lambda: test_calls_cancelled.test_a_unary_caller_that_leaves_ends_the_handler("local", "local", by_task=True),
    ),
    "deadline": (lose_deadline, lambda: test_calls_cancelled.test_a_handler_knows_the_deadline("local", "local")),
    "order": (swap_messages, lambda: test_streams.test_every_byte_of_every_stream_arrives("local", "local", 200)),
    "back-pressure": (
        credit_at_once,
        lambda: test_streams_slow.test_what_waits_for_a_reader_that_does_not_read_is_bounded("local"),
    ),
}


@pytest.mark.parametrize("name", CASES)
async def test_a_broken_promise_fails_its_case(name: str) -> None:
    change, case = CASES[name]
    for network, is_whole in ((BrokenNetwork(keep), True), (BrokenNetwork(change), False)):
        NETWORK.set(network)
        if is_whole:
            await case()
            continue
        with pytest.raises((AssertionError, ExceptionGroup, TimeoutError, ValueError)):
            async with asyncio.timeout(CASE_S):
                await case()


class Shared(bytes):
    """A message that passes as the object that it is."""

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
async def test_a_handler_that_changes_its_request_changes_nothing_of_its_callers(way: str) -> None:
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
