"""Quotas: an account's counters and queue by themselves, then over gRPC."""

import asyncio
import math
from typing import Any

import orjson
import pytest

from headrace.errors import HeadraceError, QueueFull, QuotaExceeded
from headrace.streams import reading
from headrace.v1 import llm_pb2
from services.llm_gateway.limits.quota import ANSWER_S, WAITING_MAX, Account, Accounts
from services.llm_gateway.providers.provider_file import Provider, Quota
from tests.support.llm_gateway.gateway import Asking, Gateway, provider_entry
from tests.support.timing import within

WINDOW_S = 0.3


def account(replicas: int = 1, **limits: int) -> Account:
    return Account("p", Quota.model_validate(limits), replicas=replicas, window_s=WINDOW_S)


async def use(account: Account, *, tokens: int = 1, spent: int | None = None, for_s: float = 0) -> float:
    """Make one call and return when it was admitted."""
    async with account.admitting(tokens, math.inf, lambda: tokens if spent is None else spent, tenant="t"):
        began_s = asyncio.get_running_loop().time()
        await asyncio.sleep(for_s)
    return began_s


async def measure_turns(*calls: Any) -> list[float]:
    """Make the calls concurrently and return when each was admitted, in windows from now."""
    started_s = asyncio.get_running_loop().time()
    async with asyncio.timeout(50), asyncio.TaskGroup() as group:
        tasks = [group.create_task(call) for call in calls]
    return [(task.result() - started_s) / WINDOW_S for task in tasks]


async def test_without_a_quota_nobody_waits() -> None:
    free = account()
    assert max(await measure_turns(*[use(free, tokens=10**9) for _ in range(200)])) < 0.5


async def test_requests_over_the_quota_wait_for_the_next_window_in_order() -> None:
    limited = account(requests_per_minute=2)
    turns = await measure_turns(*[use(limited) for _ in range(5)])
    assert turns == sorted(turns)
    assert [math.floor(turn + 0.05) for turn in turns] == [0, 0, 1, 1, 2]


async def test_reserved_tokens_are_settled_with_the_tokens_spent() -> None:
    limited = account(tokens_per_minute=100)
    await use(limited, tokens=90, spent=10)
    await use(limited, tokens=90, spent=80)
    assert (await measure_turns(use(limited, tokens=10)))[0] < 0.5
    assert (await measure_turns(use(limited, tokens=10)))[0] > 0.5


async def test_a_request_larger_than_the_quota_is_admitted_alone() -> None:
    limited = account(tokens_per_minute=100)
    first, second = await measure_turns(use(limited, tokens=1000), use(limited, tokens=1))
    assert first < 0.5
    assert second > 0.9


async def test_concurrency_admits_the_next_call_when_one_ends() -> None:
    limited = account(concurrency=2)
    turns = await measure_turns(*[use(limited, for_s=0.1) for _ in range(6)])
    assert [math.floor(turn * WINDOW_S / 0.1 + 0.2) for turn in turns] == [0, 0, 1, 1, 2, 2]


async def test_replicas_share_the_quota_evenly_and_each_has_at_least_one() -> None:
    assert (await measure_turns(*[use(account(replicas=3, concurrency=6), for_s=0.1)] * 1))[0] < 0.5
    thirds = account(replicas=3, concurrency=6)
    turns = await measure_turns(*[use(thirds, for_s=0.1) for _ in range(3)])
    assert [turn * WINDOW_S > 0.09 for turn in turns] == [False, False, True]
    assert (await measure_turns(use(account(replicas=100, concurrency=6))))[0] < 0.5


async def test_a_full_queue_refuses_at_once() -> None:
    limited = account(concurrency=1)
    async with limited.admitting(0, math.inf, int, tenant="t"), asyncio.TaskGroup() as group:
        waiting = [group.create_task(use(limited)) for _ in range(WAITING_MAX)]
        await asyncio.sleep(0)
        with pytest.raises(QueueFull) as caught:
            await use(limited)
        assert limited.waiting == WAITING_MAX
        for task in waiting:
            task.cancel()
    assert caught.value.retry_after_s
    assert limited.waiting == 0


async def test_a_wait_ends_just_before_the_callers_deadline() -> None:
    limited = account(requests_per_minute=1)
    await use(limited)
    loop = asyncio.get_running_loop()
    due_s = loop.time() + ANSWER_S + 0.1
    with pytest.raises(QuotaExceeded) as caught:
        async with limited.admitting(1, due_s, int, tenant="t"):
            pass
    assert due_s - ANSWER_S - 0.01 < loop.time() < due_s
    assert caught.value.retry_after_s == pytest.approx(WINDOW_S - 0.1, abs=ANSWER_S)


async def test_a_cancelled_waiter_returns_its_place_in_the_queue() -> None:
    limited = account(concurrency=1)
    for turns_of_the_loop in range(5):
        async with asyncio.TaskGroup() as group:
            async with limited.admitting(0, math.inf, int, tenant="t"):
                waiting = group.create_task(use(limited))
                await asyncio.sleep(0)
            for _ in range(turns_of_the_loop):
                await asyncio.sleep(0)
            waiting.cancel()
        async with within(1):
            await use(limited)
        assert limited.waiting == 0


async def test_a_reload_changes_the_limits_and_keeps_the_counters() -> None:
    def provider(**quota: int) -> Provider:
        return Provider.model_validate(provider_entry("http://127.0.0.1:1/v1", quota=quota))

    accounts = Accounts(replicas=1)
    sim = accounts.get_account(provider(requestsPerMinute=1))
    await use(sim)
    waiting = asyncio.create_task(use(sim))
    await asyncio.sleep(0)
    accounts.keep_configured([provider(requestsPerMinute=2)])
    async with within(1):
        await waiting
    assert accounts.get_account(provider()) is sim
    with pytest.raises(QuotaExceeded):
        async with sim.admitting(0, asyncio.get_running_loop().time(), int, tenant="t"):
            pass
    accounts.keep_configured([])
    assert accounts.get_account(provider()) is not sim


async def test_a_call_over_the_quota_waits_to_its_deadline_and_gets_a_retry_after(asking: Asking) -> None:
    async with asking(quota={"requestsPerMinute": 1}) as gateway:
        assert (await gateway.chat()).error is None
        with pytest.raises(QuotaExceeded) as caught:
            async with reading(gateway.llm.StreamChat(gateway.request(), timeout=0.6)) as replies:
                assert [delta.WhichOneof("delta") async for delta in replies] == ["started"]
        assert len(gateway.sim.requests) == 1
    assert 55 < (caught.value.retry_after_s or 0) < 60


async def test_a_reload_of_the_file_keeps_the_accounts_counters(asking: Asking) -> None:
    async with asking(quota={"requestsPerMinute": 1}) as gateway:
        await gateway.chat()
        entry = provider_entry(gateway.sim.base_url, quota={"requestsPerMinute": 1}, models=[{"name": "sim-9"}])
        gateway.provider_file.write_bytes(orjson.dumps({"providers": [entry]}))
        while (await try_briefly(gateway)) == "INVALID_REQUEST":
            await asyncio.sleep(0.05)
        assert await try_briefly(gateway) == "QUOTA_EXCEEDED"


async def try_briefly(gateway: Gateway) -> str:
    try:
        async with reading(gateway.llm.StreamChat(gateway.request(model="sim-9"), timeout=0.5)) as replies:
            async for _ in replies:
                pass
    except HeadraceError as error:
        return error.reason
    return ""


async def test_calls_above_the_concurrency_limit_wait_for_others(asking: Asking) -> None:
    async with asking(quota={"concurrency": 2}) as gateway:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(gateway.chat(model="bench-10x20ms")) for _ in range(6)]
        assert all(task.result().error is None for task in tasks)
        spans = [(request.started_at_s, request.ended_at_s or 0) for request in gateway.sim.requests]
        assert max(sum(begin <= at < end for begin, end in spans) for at, _ in spans) == 2


async def test_an_answer_without_visible_deltas_still_counts_its_tokens(asking: Asking) -> None:
    usage = {"usage": {"prompt_tokens": 100, "completion_tokens": 500}}
    async with asking([{"steps": [usage, {"finish": "length"}]}], quota={"tokensPerMinute": 10_000}) as gateway:
        result = await gateway.chat()
        (provider, *_) = (await gateway.llm.ListProviders(llm_pb2.ListProvidersRequest(), timeout=60)).providers
    assert result.kinds == ["started", "usage", "finish"]
    assert provider.minute_tokens == 600
