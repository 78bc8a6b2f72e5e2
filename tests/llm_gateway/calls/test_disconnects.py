"""A caller disconnects in every phase: the provider's connection is closed within 500 ms, and nothing is left over."""

import asyncio
from typing import Any

import grpc
import pytest
from prometheus_client import REGISTRY

from headrace.streams import reading
from tests.support.llm_gateway.answering import raw_provider
from tests.support.llm_gateway.gateway import Asking, Gateway
from tests.support.timing import within

CLOSED_WITHIN_S = 0.5


async def wait_for_close(gateway: Gateway) -> None:
    async with within(CLOSED_WITHIN_S):
        await gateway.sim.until_idle()
    assert gateway.sim.requests[-1].closed_by_client


def open_streams() -> float | None:
    return REGISTRY.get_sample_value("headrace_llm_open_streams")


async def read_to_end(call: grpc.aio.UnaryStreamCall[Any, Any]) -> None:
    async with reading(call) as replies:
        async for _ in replies:
            pass


async def test_disconnecting_between_deltas_closes_the_providers_connection(asking: Asking) -> None:
    async with asking() as gateway:
        async with reading(gateway.llm.StreamChat(gateway.request(model="bench-1000x20ms"))) as replies:
            async for delta in replies:
                if delta.content:
                    break
        await wait_for_close(gateway)


async def test_disconnecting_before_the_first_delta_closes_the_providers_connection(asking: Asking) -> None:
    async with asking() as gateway:
        async with reading(gateway.llm.StreamChat(gateway.request(model="idle"))) as replies:
            assert (await anext(replies)).started.provider == "sim"
            while not gateway.sim.open_streams:
                await asyncio.sleep(0.01)
        await wait_for_close(gateway)


async def test_disconnecting_before_the_response_closes_the_providers_connection(asking: Asking) -> None:
    async with raw_provider(b"") as (base_url, ended), asking(baseUrl=base_url) as gateway:
        async with reading(gateway.llm.StreamChat(gateway.request())) as replies:
            assert (await anext(replies)).started.provider == "sim"
            await asyncio.sleep(0.1)
        async with within(CLOSED_WITHIN_S):
            await ended.wait()


async def test_disconnecting_under_back_pressure_closes_the_providers_connection(asking: Asking) -> None:
    async with asking() as gateway:
        async with reading(gateway.llm.StreamChat(gateway.request(model="bench-100000x0ms"))) as replies:
            assert (await anext(replies)).started.provider == "sim"
            await asyncio.sleep(0.5)  # nobody reads: buffers fill up to the provider
        await wait_for_close(gateway)


async def test_disconnecting_during_a_retry_wait_cancels_the_retry(asking: Asking) -> None:
    refused = {"status": 429, "headers": {"Retry-After": "5"}}
    async with asking([{"steps": [refused]}], retry={"maxAttempts": 3}) as gateway:
        async with reading(gateway.llm.StreamChat(gateway.request())) as replies:
            assert (await anext(replies)).started.attempt == 1
            await asyncio.sleep(0.2)
            assert open_streams() == 1
        async with within(CLOSED_WITHIN_S):
            while open_streams():
                await asyncio.sleep(0.01)
        assert len(gateway.sim.requests) == 1


async def test_disconnecting_from_a_fallback_closes_its_connection(asking: Asking) -> None:
    script = [{"match": {"model": "sim-2"}, "steps": [{"stall": True}]}, {"steps": [{"status": 503}]}]
    async with asking(script, spare={}, fallback=["spare/sim-2"]) as gateway:
        async with reading(gateway.llm.StreamChat(gateway.request())) as replies:
            assert [(await anext(replies)).started.attempt for _ in range(2)] == [1, 2]
            while len(gateway.sim.requests) < 2:
                await asyncio.sleep(0.01)
        await wait_for_close(gateway)


async def test_disconnecting_while_queued_frees_the_place_for_the_next_call(asking: Asking) -> None:
    async with asking(quota={"concurrency": 1}) as gateway:
        async with reading(gateway.llm.StreamChat(gateway.request(model="idle"))) as running:
            await anext(running)
            while not gateway.sim.requests:
                await asyncio.sleep(0.01)
            async with reading(gateway.llm.StreamChat(gateway.request(model="idle"))) as waiting:
                await anext(waiting)
        async with within(CLOSED_WITHIN_S):
            assert (await gateway.chat()).error is None
        assert [request.body["model"] for request in gateway.sim.requests] == ["idle", "sim-1"]


async def test_a_deadline_closes_the_providers_connection(asking: Asking) -> None:
    async with asking() as gateway:
        call = gateway.llm.StreamChat(gateway.request(model="idle"), timeout=3.0)
        while not gateway.sim.open_streams:
            await asyncio.sleep(0.01)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await read_to_end(call)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await wait_for_close(gateway)


async def test_a_stopping_gateway_closes_the_providers_connection(asking: Asking) -> None:
    async with asking() as gateway:
        call = gateway.llm.StreamChat(gateway.request(model="idle"))
        assert (await anext(aiter(call))).started.provider == "sim"
        while not gateway.sim.open_streams:
            await asyncio.sleep(0.01)
        sim = gateway.sim
    assert sim.open_streams == 0
    call.cancel()


async def test_repeated_disconnects_leave_no_tasks_behind(asking: Asking) -> None:
    async with asking() as gateway:
        before = len(asyncio.all_tasks())
        for _ in range(30):
            async with reading(gateway.llm.StreamChat(gateway.request(model="bench-1000x5ms"))) as replies:
                await anext(replies)
                await anext(replies)
        await wait_for_close(gateway)
        await asyncio.sleep(0.1)
        assert len(asyncio.all_tasks()) <= before + 1
