"""Servers start, serve, drain and stop. The scripted gateway acts as a service."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from headrace.errors import ProviderUnavailable
from headrace.streams import reading, rpc_errors
from headrace.v1 import llm_pb2, llm_pb2_grpc
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.channels import open_channel
from services.runtime.rpc.server import serving_grpc
from tests.support.http2.ends import code_of
from tests.support.scripted_llm import (
    COUNT,
    NAME,
    REQUEST,
    SILENCE_S,
    TEST_TIMEOUT_S,
    ScriptedLlm,
    Step,
    build_service,
    read,
    serving_script,
)
from tests.support.timing import within

pytestmark = pytest.mark.usefixtures("quiet")


async def test_each_address_is_served_and_reported_with_its_port(tmp_path: Path) -> None:
    async with serving_script(["a"], listen=f"127.0.0.1:0, unix:{tmp_path}/s,127.0.0.1:0") as suite:
        first, second, third = suite.running.addresses
        assert second == f"unix:{tmp_path}/s"
        assert len({first, third, "127.0.0.1:0"}) == 3
        for address in suite.running.addresses:
            async with open_channel(address) as channel:
                assert (await llm_pb2_grpc.LlmServiceStub(channel).CountTokens(COUNT)).tokens == 1


@dataclass(slots=True)
class Server:
    """A server that the test stops, and a caller that outlives it."""

    llm: ScriptedLlm
    stub: llm_pb2_grpc.LlmServiceAsyncStub
    health: Any
    stop: Callable[[], None]
    stopped: asyncio.Task[None]


@asynccontextmanager
async def server(
    steps: Iterable[Step], *, drain_s: float = 0.0, drain: Callable[[], Awaitable[None]] | None = None
) -> AsyncGenerator[Server]:
    llm = ScriptedLlm(steps)  # pyright: ignore[reportAbstractUsage] - ListModels is left out on purpose
    settings, bound, stop = (
        ServerSettings(listen="127.0.0.1:0", drain_s=drain_s),
        asyncio.Queue[str](1),
        asyncio.Event(),
    )

    async def run() -> None:
        async with serving_grpc(settings, [build_service(llm)], drain=drain) as running:
            bound.put_nowait(running.addresses[0])
            await stop.wait()

    async with asyncio.timeout(TEST_TIMEOUT_S), asyncio.TaskGroup() as group:
        stopped = group.create_task(run())
        async with open_channel(await bound.get()) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            yield Server(llm, llm_pb2_grpc.LlmServiceStub(channel), health, stop.set, stopped)
        stop.set()


@pytest.mark.parametrize("drain_s", [0, 0.2])
@pytest.mark.parametrize("steps", [["a", SILENCE_S], itertools.repeat("x" * 100_000)], ids=["silent", "flood"])
async def test_a_stream_that_does_not_end_is_cut_when_the_drain_time_is_over(
    drain_s: float, steps: Iterable[Step]
) -> None:
    clock = asyncio.get_running_loop().time
    async with server(steps, drain_s=drain_s) as running_server:
        answer = asyncio.create_task(read(running_server.stub.StreamChat(REQUEST), []))
        await running_server.llm.opened.wait()
        running_server.stop()
        started = clock()
        async with within(drain_s + 0.5):
            with pytest.raises(ProviderUnavailable):
                await answer
            await running_server.stopped
        assert clock() - started >= drain_s
        assert running_server.llm.closed_in is running_server.llm.opened_in


async def test_a_draining_server_is_not_ready_but_answers_until_it_stops() -> None:
    draining, go_on = asyncio.Event(), asyncio.Event()

    async def drain() -> None:
        draining.set()
        await go_on.wait()

    async with server([], drain=drain) as running_server:
        watch = running_server.health.Watch(health_pb2.HealthCheckRequest(service=NAME))
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        running_server.stop()
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        await draining.wait()
        await running_server.stub.CountTokens(COUNT)
        go_on.set()
        await running_server.stopped
        with pytest.raises(ProviderUnavailable), rpc_errors():
            await running_server.stub.CountTokens(COUNT)


async def test_a_failing_drain_still_stops_the_server() -> None:
    async def drain() -> None:
        raise ZeroDivisionError

    async def stop_it() -> None:
        async with server([SILENCE_S], drain=drain) as running_server:
            call = running_server.stub.StreamChat(REQUEST)
            await running_server.llm.opened.wait()
            running_server.stop()
            assert await call.code() is grpc.StatusCode.UNAVAILABLE
            assert running_server.llm.closed.is_set()

    with pytest.raises(ExceptionGroup) as caught:
        await stop_it()
    assert [type(error) for error in caught.value.exceptions] == [ZeroDivisionError]


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "unix:{folder}/socket"])
async def test_a_second_server_cannot_share_or_take_an_address(listen: str, tmp_path: Path) -> None:
    async with serving_script(["a"], listen=listen.format(folder=tmp_path)) as first:
        address = first.running.addresses[0]
        with pytest.raises(OSError, match=f"cannot listen on {address}"):
            async with serving_script(listen=address):
                pass
        assert (await first.stub.CountTokens(COUNT)).tokens == 1


async def test_the_socket_file_of_a_dead_process_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "socket"))
        dead.listen()
    async with serving_script(["a"], listen=f"unix:{tmp_path}/socket") as suite:
        assert (await suite.stub.CountTokens(COUNT)).tokens == 1


async def test_a_message_over_the_limit_is_refused_and_the_next_one_is_served() -> None:
    llm = ScriptedLlm(["a"])  # pyright: ignore[reportAbstractUsage] - as above
    settings = ServerSettings(listen="127.0.0.1:0", drain_s=0)
    large = llm_pb2.CountTokensRequest(
        provider_key="p", model="m", tools=[llm_pb2.ToolSchema(name="t", description="x" * 5000)]
    )
    async with (
        asyncio.timeout(TEST_TIMEOUT_S),
        serving_grpc(settings, [build_service(llm)], message_bytes_max=5000) as running,
        open_channel(running.addresses[0]) as channel,
    ):
        stub = llm_pb2_grpc.LlmServiceStub(channel)
        assert await code_of(stub.CountTokens(large)) is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await stub.CountTokens(COUNT)).tokens == 1


async def test_large_messages_between_services_are_transferred_both_ways() -> None:
    text = "x" * (8 * 1024 * 1024)
    request = llm_pb2.ChatRequest(
        provider_key="p", model="m", messages=[llm_pb2.Message(role="user", content=[llm_pb2.ContentPart(text=text)])]
    )
    async with serving_script([text]) as suite, reading(suite.stub.StreamChat(request)) as deltas:
        assert (await anext(deltas)).content == text


async def test_a_proxy_setting_of_the_machine_does_not_apply_to_services(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    async with serving_script(["a"]) as suite:
        assert (await suite.stub.CountTokens(COUNT, timeout=20)).tokens == 1
