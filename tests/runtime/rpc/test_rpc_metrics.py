"""Metrics of every server: RPCs, open streams, the lag of the event loop, and the tenants that may be named."""

import asyncio
import time

import grpc
import pytest
from prometheus_client import REGISTRY

from headrace.errors import NotFound
from headrace.streams import reading
from services.runtime.auth import identity
from services.runtime.auth.identity import Identity, acting_as
from services.runtime.clock import CLOCK
from services.runtime.process.metrics import BUSY_PAUSE_S, measuring_loop_lag, measuring_loop_load
from tests.support.logged import Logged
from tests.support.scripted_llm import COUNT, REQUEST, SILENCE_S, serving_script
from tests.support.timing import within

METHOD = "/headrace.v1.LlmService/CountTokens"


def read_metric(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


async def test_an_rpc_is_counted_with_its_code() -> None:
    before = read_metric("headrace_rpc_duration_seconds_count", method=METHOD, code="NOT_FOUND")
    async with serving_script([NotFound("no")]) as suite:
        with pytest.raises(grpc.aio.AioRpcError):
            await suite.stub.CountTokens(COUNT)
        async with within(1):
            while read_metric("headrace_rpc_duration_seconds_count", method=METHOD, code="NOT_FOUND") == before:
                await asyncio.sleep(0.005)


async def test_streams_are_counted_while_they_are_open() -> None:
    before = read_metric("headrace_rpc_open_streams")
    async with serving_script(["a", SILENCE_S]) as suite:
        async with reading(suite.stub.StreamChat(REQUEST)) as deltas:
            await anext(deltas)
            assert read_metric("headrace_rpc_open_streams") == before + 1
        await suite.wait_closed()
        async with within(1):
            while read_metric("headrace_rpc_open_streams") != before:
                await asyncio.sleep(0.005)


async def test_a_blocked_event_loop_is_measured() -> None:
    before = read_metric("headrace_event_loop_lag_seconds_sum")
    async with measuring_loop_lag(interval_s=0.01):
        await asyncio.sleep(0.02)
        time.sleep(0.1)  # noqa: ASYNC251 - this is what is measured
        await asyncio.sleep(0.02)
    assert read_metric("headrace_event_loop_lag_seconds_sum") - before >= 0.08


class LoadedClock:
    """A clock whose CPU time of the thread passes at a set ratio to real time."""

    def __init__(self) -> None:
        self.ratio, self.skipped_s = 0.0, 0.0
        self._cpu_s, self._at_s = 0.0, self.monotonic()

    def time_ns(self) -> int:
        return int(self.monotonic() * 1e9)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time() + self.skipped_s

    def thread_time(self) -> float:
        now_s = self.monotonic()
        self._cpu_s, self._at_s = self._cpu_s + self.ratio * (now_s - self._at_s), now_s
        return self._cpu_s


async def wait_for_load(ratio: float) -> None:
    async with within(5):
        while read_metric("headrace_event_loop_busy_ratio") != pytest.approx(ratio, abs=0.004):
            await asyncio.sleep(0.005)


async def test_a_busy_core_is_measured_and_reported_once_in_a_while(logged: Logged) -> None:
    clock = LoadedClock()
    CLOCK.set(clock)
    async with measuring_loop_load(interval_s=0.01):
        clock.ratio = 0.5
        await wait_for_load(0.5)
        assert not logged.named("event loop busy")
        for ratio, reported in ((0.97, 1), (0.95, 1), (0.96, 1)):
            clock.ratio = ratio
            await wait_for_load(ratio)
            assert len(logged.named("event loop busy")) == reported
        clock.skipped_s = BUSY_PAUSE_S
        clock.ratio = 0.98
        await wait_for_load(0.98)
        (_, line) = logged.named("event loop busy")
    assert "--replicas or --split" in line["problem"]


def test_only_a_limited_number_of_tenants_is_named() -> None:
    named = set[str]()
    for number in range(identity.TENANTS_MAX + 10):
        with acting_as(Identity(f"tenant-{number}", "u")):
            named.add(identity.label_tenant())
    assert len(named) <= identity.TENANTS_MAX + 1
    assert identity.OTHERS in named
