"""A channel to several servers: it spreads its calls, skips unavailable servers, and repeats a call at another server
if one says that it is leaving.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from services.runtime.calls.addresses import parse_target, resolve_target
from tests.support.http2.ends import TEST_TIMEOUT_S, Add, Caller, Stack, channel, handlers, serving

SERVERS: list[Stack] = ["ours", "grpcio"]


def make_named_server(name: bytes, call_counts: Counter[bytes], *, is_leaving: bool = False) -> Add:
    """Return a server that answers with its name, or tells its callers to go to another one."""

    async def unary(request: bytes, context: Any) -> bytes:
        call_counts[name] += 1
        if is_leaving:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "leaving", (("grpc-retry-pushback-ms", "0"),))
        return name

    async def stream(request: bytes, context: Any) -> AsyncGenerator[bytes]:
        yield await unary(request, context)
        yield b"rest"

    return handlers(unary=unary, stream=stream)


@asynccontextmanager
async def connecting_to(folder: Path, *adds: Add, server: Stack = "ours") -> AsyncGenerator[Caller]:
    """Yield a caller of servers, each on a socket of its own."""
    addresses = [f"unix:{folder}/{number}" for number in range(len(adds))]
    async with asyncio.timeout(TEST_TIMEOUT_S), AsyncExitStack() as stack:
        for address, add in zip(addresses, adds, strict=True):
            await stack.enter_async_context(serving(server, add, address=address))
        over = await stack.enter_async_context(channel("ours", ",".join(addresses)))
        # All of them are connected once one has answered.
        await over.channel_ready()
        await asyncio.sleep(0.05)
        yield Caller(over)


async def test_calls_are_spread_over_all_servers_in_turn(tmp_path: Path) -> None:
    call_counts = Counter[bytes]()
    async with connecting_to(
        tmp_path, make_named_server(b"a", call_counts), make_named_server(b"b", call_counts)
    ) as caller:
        for _ in range(10):
            await caller.unary(b"")
    assert call_counts == {b"a": 5, b"b": 5}


async def test_an_unavailable_server_is_skipped_and_found_again(tmp_path: Path) -> None:
    call_counts = Counter[bytes]()
    first, second = f"unix:{tmp_path}/a", f"unix:{tmp_path}/b"
    async with asyncio.timeout(TEST_TIMEOUT_S), channel("ours", f"{first},{second}") as over:
        caller = Caller(over)
        async with serving("ours", make_named_server(b"a", call_counts), address=first):
            assert {await caller.unary(b"") for _ in range(4)} == {b"a"}
            async with serving("ours", make_named_server(b"b", call_counts), address=second):
                while await caller.unary(b"") != b"b":
                    await asyncio.sleep(0.05)
            await asyncio.sleep(0.05)
            assert {await caller.unary(b"") for _ in range(4)} == {b"a"}


@pytest.mark.parametrize("server", SERVERS)
async def test_a_call_refused_by_a_leaving_server_is_repeated_at_another(tmp_path: Path, server: Stack) -> None:
    call_counts = Counter[bytes]()
    leaving = make_named_server(b"leaving", call_counts, is_leaving=True)
    async with connecting_to(tmp_path, leaving, make_named_server(b"other", call_counts), server=server) as caller:
        assert [await caller.unary(b"") for _ in range(10)] == [b"other"] * 10
        for _ in range(4):
            assert [message async for message in caller.stream(b"")] == [b"other", b"rest"]
    assert call_counts[b"leaving"]


async def test_a_refused_call_waits_for_another_server_to_be_reached(tmp_path: Path) -> None:
    call_counts = Counter[bytes]()
    first, second = f"unix:{tmp_path}/a", f"unix:{tmp_path}/b"
    async with (
        asyncio.timeout(TEST_TIMEOUT_S),
        channel("ours", f"{first},{second}") as over,
        serving("ours", make_named_server(b"leaving", call_counts, is_leaving=True), address=first),
    ):
        await over.channel_ready()
        await asyncio.sleep(0.05)
        async with serving("ours", make_named_server(b"other", call_counts), address=second):
            assert await Caller(over).unary(b"") == b"other"
    assert call_counts == {b"leaving": 1, b"other": 1}


async def test_a_call_refused_by_all_servers_fails_after_two(tmp_path: Path) -> None:
    call_counts = Counter[bytes]()
    leaving = [make_named_server(name, call_counts, is_leaving=True) for name in (b"a", b"b")]
    async with connecting_to(tmp_path, *leaving) as caller:
        with pytest.raises(grpc.aio.AioRpcError, match="leaving"):
            await caller.unary(b"")
        assert call_counts == {b"a": 1, b"b": 1}
    call_counts.clear()
    async with connecting_to(tmp_path / "..", make_named_server(b"alone", call_counts, is_leaving=True)) as caller:
        with pytest.raises(grpc.aio.AioRpcError, match="leaving"):
            await caller.unary(b"")
        assert call_counts == {b"alone": 1}


async def test_each_server_of_a_list_is_named_by_its_own_entry() -> None:
    target = parse_target("10.0.0.1:7001,one.example:7002,unix:/run/x")
    assert target.is_spread
    assert target.authority == "10.0.0.1:7001"
    addresses = await resolve_target(target)
    assert addresses == [("10.0.0.1", 7001), ("one.example", 7002), "/run/x"]
    assert [target.get_certificate_name(address) for address in addresses] == ["10.0.0.1", "one.example", "localhost"]


@pytest.mark.parametrize("target", ["a:1,", "a:1,b", "dns:///a:1,b:2"])
async def test_a_malformed_list_is_rejected(target: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_target(target)
