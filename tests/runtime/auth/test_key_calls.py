"""The calls of API keys, shared by replicas that take them from one memory service; the test moves the clock."""

import asyncio
import time
from collections.abc import Generator
from dataclasses import dataclass, field

import pytest

from headrace.errors import Overloaded, QuotaExceeded
from headrace.v1 import keys_pb2
from services.memory.storage.key_uses import take_from_bucket
from services.runtime.auth.key_calls import ALONE_S, LOT_GOOD_S, KeyCalls
from services.runtime.clock import CLOCK, now_ms

KEY = "a key"


@dataclass
class StoppedClock:
    at_s: float = 1_800_000_000.0

    def time_ns(self) -> int:
        return round(self.at_s * 1e9)

    def monotonic(self) -> float:
        return self.at_s

    def thread_time(self) -> float:
        return time.thread_time()


@dataclass
class Memory:
    """A bucket as memory stores it, and the number of requests."""

    per_minute: int
    full_at_us: int = 0
    request_count: int = 0
    is_away: bool = False
    answers: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.answers.set()

    async def take(self, key_id: str, wanted: int) -> keys_pb2.TakeKeyCallsResponse:
        self.request_count += 1
        await self.answers.wait()
        if self.is_away:
            raise Overloaded("it is away")
        use = take_from_bucket(self.full_at_us, self.per_minute, wanted, now_ms())
        self.full_at_us = use.full_at_us
        return keys_pb2.TakeKeyCallsResponse(
            granted=use.granted,
            retry_after_ms=use.wait_ms(self.per_minute, now_ms()),
            full_in_ms=use.full_at_us // 1000 - now_ms(),
        )

    def replicas(self, count: int = 3) -> list[KeyCalls]:
        new_replicas = [KeyCalls() for _ in range(count)]
        for replica in new_replicas:
            replica.take_from(self.take)
        return new_replicas


@pytest.fixture(autouse=True)
def clock() -> Generator[StoppedClock]:
    clock = StoppedClock()
    token = CLOCK.set(clock)
    yield clock
    CLOCK.reset(token)


async def call(replica: KeyCalls, memory: Memory, times: int = 1) -> int:
    """Return how many of the calls were accepted."""
    accepted = 0
    for _ in range(times):
        try:
            await replica.count(KEY, memory.per_minute)
        except QuotaExceeded:
            continue
        accepted += 1
    return accepted


@pytest.mark.parametrize("per_minute", [1, 6, 100, 6_000])
async def test_three_replicas_accept_exactly_a_keys_calls_with_few_requests_to_memory(per_minute: int) -> None:
    memory = Memory(per_minute)
    replicas = memory.replicas()
    accepted = sum([await call(replica, memory, per_minute) for replica in replicas])
    assert accepted == per_minute
    assert memory.request_count <= min(per_minute, 60 + per_minute % 60) + 2 * len(replicas), (
        "a lot is a second's worth"
    )


async def test_simultaneous_calls_wait_for_one_batch() -> None:
    memory = Memory(6_000)
    memory.answers.clear()
    (replica,) = memory.replicas(1)
    calls = [asyncio.create_task(replica.count(KEY, 6_000)) for _ in range(80)]
    await asyncio.sleep(0)
    memory.answers.set()
    await asyncio.gather(*calls)
    assert memory.request_count == 1


async def test_a_refusal_says_when_to_retry_and_memory_is_not_asked_before(clock: StoppedClock) -> None:
    memory = Memory(60)
    first, second = memory.replicas(2)
    assert await call(first, memory, 60) == 60
    for replica in (first, second):
        with pytest.raises(QuotaExceeded) as caught:
            await replica.count(KEY, 60)
        assert caught.value.retry_after_s == pytest.approx(1.0)
        assert replica.measure(KEY, 60) == (60, pytest.approx(1.0))
    requests_before = memory.request_count
    assert await call(first, memory, 50) == 0
    assert memory.request_count == requests_before
    clock.at_s += 1.0
    assert await call(first, memory) + await call(second, memory) == 1
    clock.at_s += 30.0
    assert (await call(first, memory, 100), memory.per_minute) == (30, 60)


async def test_calls_taken_long_ago_do_not_count_in_a_later_minute(clock: StoppedClock) -> None:
    memory = Memory(600)
    replicas = memory.replicas()
    for replica in replicas:
        await replica.count(KEY, 600)
    clock.at_s += 60 + LOT_GOOD_S
    assert sum([await call(replica, memory, 600) for replica in replicas]) == 600


async def test_while_memory_is_unavailable_each_replica_counts_by_itself(clock: StoppedClock) -> None:
    memory = Memory(6)
    first, second = memory.replicas(2)
    assert await call(first, memory, 2) == 2
    memory.is_away = True
    assert await call(first, memory, 10) == 4, "what it knows of counts"
    assert await call(second, memory, 10) == 6
    requests_before = memory.request_count
    assert requests_before <= 4, "who does not answer is not asked for each call"
    memory.is_away = False
    clock.at_s += ALONE_S + 30
    assert await call(first, memory, 10) + await call(second, memory, 10) >= 3
    assert memory.request_count > requests_before


async def test_an_unshared_key_is_counted_locally() -> None:
    alone, memory = KeyCalls(), Memory(3)
    assert await call(alone, memory, 5) == 3
    assert memory.request_count == 0
