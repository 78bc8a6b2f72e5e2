"""What is special about in-memory connections: names without a socket, other ways to the same server, and whose context
a handler has.

What all connections have in common is tested in tests/runtime/http2, whose pairs include this transport.
"""

import asyncio
from contextvars import ContextVar
from typing import Any

import grpc
import pytest

from services.runtime.calls.addresses import parse_target
from services.runtime.http2.server.server import Server
from services.runtime.local.network import NETWORK, LocalNetwork
from services.runtime.process.transport import VARIABLE
from services.runtime.rpc.channels import open_channel
from tests.support.http2.channel import Channel
from tests.support.http2.ends import BYTES_MAX, TEST_TIMEOUT_S, Caller, channel, connecting, handlers, serving

NAME = "local:somebody"
CALLER: ContextVar[str] = ContextVar("CALLER", default="nobody")


async def return_peer(request: bytes, context: Any) -> bytes:
    return context.peer().encode()


async def return_caller(request: bytes, context: Any) -> bytes:
    return CALLER.get().encode()


@pytest.fixture(autouse=True)
def transport(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "local")


async def test_a_name_without_a_socket_is_reached_in_memory() -> None:
    async with connecting("local", "local", handlers(unary=return_peer), address=NAME) as caller:
        assert (await caller.unary(b"")).startswith(b"local:")


async def test_an_address_of_the_process_is_reached_in_memory_and_from_outside_by_socket() -> None:
    async with (
        asyncio.timeout(TEST_TIMEOUT_S),
        serving("local", handlers(unary=return_peer)) as (_, address),
        open_channel(address) as inside,
        Channel(address, message_bytes_max=BYTES_MAX) as outside,
    ):
        assert (await Caller(inside).unary(b"")).startswith(b"local:")
        assert (await Caller(outside).unary(b"")).startswith(b"ipv4:127.0.0.1:")


async def test_a_server_of_another_process_is_reached_over_its_socket() -> None:
    async with (
        asyncio.timeout(TEST_TIMEOUT_S),
        serving("ours", handlers(unary=return_peer)) as (_, address),
        open_channel(address) as over,
    ):
        assert (await Caller(over).unary(b"")).startswith(b"ipv4:127.0.0.1:")


async def test_several_names_are_called_in_turn_and_unavailable_ones_skipped() -> None:
    names = [f"{NAME}-{number}" for number in range(3)]
    async with (
        asyncio.timeout(TEST_TIMEOUT_S),
        serving("local", handlers(unary=return_peer), address=names[0]),
        serving("local", handlers(unary=return_peer), address=names[1]) as (second, _),
        open_channel(",".join(names)) as over,
    ):
        assert len({await Caller(over).unary(b"") for _ in range(4)}) == 2
        await second.stop(None)
        assert len({await Caller(over).unary(b"") for _ in range(4)}) == 1


async def test_a_name_without_a_server_fails_as_unavailable_with_a_clear_message() -> None:
    async with asyncio.timeout(TEST_TIMEOUT_S), open_channel(NAME) as over:
        with pytest.raises(grpc.aio.AioRpcError, match=f"{NAME}: no server of this process listens there") as caught:
            await Caller(over).unary(b"")
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_only_one_server_can_listen_on_a_name() -> None:
    async with serving("local", handlers(unary=return_peer), address=NAME):
        with pytest.raises(OSError, match=f"another server of this process listens on {NAME}"):
            async with serving("local", handlers(unary=return_peer), address=NAME):
                raise AssertionError("two servers have one name")


async def test_names_need_the_local_transport(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError, match="inside one process"):
        Server(message_bytes_max=BYTES_MAX).add_insecure_port(NAME)
    monkeypatch.setenv(VARIABLE, "h2")
    with pytest.raises(ValueError, match=f"{VARIABLE}=local"):
        open_channel(NAME)
    with pytest.raises(ValueError, match="expected"):
        parse_target("local:")


async def test_a_handler_does_not_inherit_its_callers_context() -> None:
    async with connecting("local", "local", handlers(unary=return_caller)) as caller:
        CALLER.set("somebody")
        assert await caller.unary(b"") == b"nobody"


async def test_each_network_has_separate_names() -> None:
    async with asyncio.timeout(TEST_TIMEOUT_S), serving("local", handlers(unary=return_peer), address=NAME):
        token = NETWORK.set(LocalNetwork())
        async with channel("local", NAME) as over:
            NETWORK.reset(token)
            with pytest.raises(grpc.aio.AioRpcError, match="no server of this process"):
                await Caller(over).unary(b"")
