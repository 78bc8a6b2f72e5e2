"""A channel to several servers: it spreads its calls, does without those that are away, and asks another one at once
where one says that it is leaving."""

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


def named(name: bytes, asked: Counter[bytes], *, is_leaving: bool = False) -> Add:
    """A server that answers with its name, or sends its callers to another one."""

    async def unary(request: bytes, context: Any) -> bytes:
        asked[name] += 1
        if is_leaving:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "leaving", (("grpc-retry-pushback-ms", "0"),))
        return name

    async def stream(request: bytes, context: Any) -> AsyncGenerator[bytes]:
        yield await unary(request, context)
        yield b"rest"

    return handlers(unary=unary, stream=stream)


@asynccontextmanager
async def to(folder: Path, *adds: Add, server: Stack = "ours") -> AsyncGenerator[Caller]:
    """A caller of servers, each on a socket of its own."""
    addresses = [f"unix:{folder}/{number}" for number in range(len(adds))]
    async with asyncio.timeout(TEST_TIMEOUT_S), AsyncExitStack() as stack:
        for address, add in zip(addresses, adds, strict=True):
            await stack.enter_async_context(serving(server, add, address=address))
        over = await stack.enter_async_context(channel("ours", ",".join(addresses)))
        # All of them are connected to when one has answered.
        await over.channel_ready()
        await asyncio.sleep(0.05)
        yield Caller(over)


async def test_calls_go_to_all_in_turn(tmp_path: Path) -> None:
    asked = Counter[bytes]()
    async with to(tmp_path, named(b"a", asked), named(b"b", asked)) as caller:
        for _ in range(10):
            await caller.unary(b"")
    assert asked == {b"a": 5, b"b": 5}


async def test_one_that_is_away_is_done_without_and_found_again(tmp_path: Path) -> None:
    asked = Counter[bytes]()
    first, second = f"unix:{tmp_path}/a", f"unix:{tmp_path}/b"
    async with asyncio.timeout(TEST_TIMEOUT_S), channel("ours", f"{first},{second}") as over:
        caller = Caller(over)
        async with serving("ours", named(b"a", asked), address=first):
            assert {await caller.unary(b"") for _ in range(4)} == {b"a"}
            async with serving("ours", named(b"b", asked), address=second):
                while await caller.unary(b"") != b"b":
                    await asyncio.sleep(0.05)
            await asyncio.sleep(0.05)
            assert {await caller.unary(b"") for _ in range(4)} == {b"a"}


@pytest.mark.parametrize("server", SERVERS)
async def test_a_call_that_one_sends_away_is_answered_by_another(tmp_path: Path, server: Stack) -> None:
    asked = Counter[bytes]()
    leaving = named(b"leaving", asked, is_leaving=True)
    async with to(tmp_path, leaving, named(b"other", asked), server=server) as caller:
        assert [await caller.unary(b"") for _ in range(10)] == [b"other"] * 10
        for _ in range(4):
            assert [message async for message in caller.stream(b"")] == [b"other", b"rest"]
    assert asked[b"leaving"]


async def test_a_call_that_is_sent_away_waits_for_the_other_to_be_reached(tmp_path: Path) -> None:
    asked = Counter[bytes]()
    first, second = f"unix:{tmp_path}/a", f"unix:{tmp_path}/b"
    async with (
        asyncio.timeout(TEST_TIMEOUT_S),
        channel("ours", f"{first},{second}") as over,
        serving("ours", named(b"leaving", asked, is_leaving=True), address=first),
    ):
        await over.channel_ready()
        await asyncio.sleep(0.05)
        async with serving("ours", named(b"other", asked), address=second):
            assert await Caller(over).unary(b"") == b"other"
    assert asked == {b"leaving": 1, b"other": 1}


async def test_a_call_that_all_send_away_fails_after_two(tmp_path: Path) -> None:
    asked = Counter[bytes]()
    leaving = [named(name, asked, is_leaving=True) for name in (b"a", b"b")]
    async with to(tmp_path, *leaving) as caller:
        with pytest.raises(grpc.aio.AioRpcError, match="leaving"):
            await caller.unary(b"")
        assert asked == {b"a": 1, b"b": 1}
    asked.clear()
    async with to(tmp_path / "..", named(b"alone", asked, is_leaving=True)) as caller:
        with pytest.raises(grpc.aio.AioRpcError, match="leaving"):
            await caller.unary(b"")
        assert asked == {b"alone": 1}


async def test_a_list_names_servers_by_what_stands_in_it() -> None:
    target = parse_target("10.0.0.1:7001,one.example:7002,unix:/run/x")
    assert target.is_spread
    assert target.authority == "10.0.0.1:7001"
    addresses = await resolve_target(target)
    assert addresses == [("10.0.0.1", 7001), ("one.example", 7002), "/run/x"]
    assert [target.get_certificate_name(address) for address in addresses] == ["10.0.0.1", "one.example", "localhost"]


@pytest.mark.parametrize("target", ["a:1,", "a:1,b", "dns:///a:1,b:2"])
async def test_what_is_no_list_is_refused(target: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_target(target)
