"""The health of providers, and the state of quotas and breakers, as the gateway reports them to operators."""

import asyncio
import math

from headrace.v1 import limits_pb2, llm_pb2
from services.llm_gateway.limits.breaker import FAILURES_MAX, KEPT_MAX, WINDOW_S, Breaker
from services.llm_gateway.limits.quota import WAITING_MAX, Account
from services.llm_gateway.providers.provider_file import Quota
from tests.support.llm_gateway.breakers import Clock, calls
from tests.support.llm_gateway.gateway import Asking, Gateway, text_message


async def test_attempts_failures_and_limits_are_reported(asking: Asking) -> None:
    quota = {"requestsPerMinute": 600, "tokensPerMinute": 90_000, "concurrency": 8}
    script = [{"match": {"text": "break"}, "steps": [{"status": 503}]}, {"steps": [{"content": ["hello"]}]}]
    async with asking(script, quota=quota) as gateway:
        before = (await gateway.llm.ListProviders(llm_pb2.ListProvidersRequest())).providers
        await gateway.chat()
        well = (await gateway.llm.ListProviders(llm_pb2.ListProvidersRequest())).providers[0]
        for _ in range(FAILURES_MAX):
            await gateway.chat(text_message("user", "break"))
        ill = (await gateway.llm.ListProviders(llm_pb2.ListProvidersRequest())).providers[0]
    assert before[0].provider_key == "sim"
    [first, *others] = before[0].models
    assert (first.model, first.breaker, first.attempts, first.HasField("error_ratio")) == ("sim-1", "closed", 0, False)
    assert (well.requests_per_minute, well.tokens_per_minute, well.concurrency, well.replicas) == (600, 90_000, 8, 1)
    assert (well.minute_requests, well.running, well.waiting) == (1, 0, 0)
    assert well.minute_tokens > 0
    assert (well.models[0].attempts, well.models[0].error_ratio) == (1, 0)
    assert 0 <= well.models[0].first_delta_ms <= well.models[0].first_delta_ms_p95
    assert (ill.models[0].breaker, ill.models[0].attempts) == ("open", FAILURES_MAX + 1)
    assert ill.models[0].blocked_ms > 0
    assert ill.models[0].error_ratio == FAILURES_MAX / (FAILURES_MAX + 1)
    assert [model.attempts for model in others] == [0] * len(others)


def test_only_recent_outcomes_count_and_their_number_is_bounded() -> None:
    clock = Clock()
    breaker = Breaker("p", "m", clock)
    calls(breaker, False, False)
    clock.now_s += WINDOW_S
    calls(breaker, True, None, tenant="b")
    for first_delta_s in (0.1, 0.2, 0.9):
        breaker.end_call(breaker.start_call("a"), succeeded=True, first_delta_s=first_delta_s)
    summary = breaker.summarise_recent("a")
    assert (summary.own, summary.error_ratio, summary.first_delta_s, summary.first_delta_s_p95) == (3, 0, 0.2, 0.9)
    calls(breaker, *[True] * (KEPT_MAX + 5))
    assert breaker.summarise_recent("a").own == KEPT_MAX
    assert breaker.summarise_recent("a").first_delta_s is None


async def test_a_tenant_sees_only_its_own_use_of_an_account() -> None:
    account = Account("p", Quota(concurrency=1, requests_per_minute=100))

    async def hold(tenant: str, release: asyncio.Event) -> None:
        async with account.admitting(1, math.inf, lambda: 1, tenant=tenant):
            await release.wait()

    release = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(hold("a", release))
        await asyncio.sleep(0)
        group.create_task(hold("b", release))
        await asyncio.sleep(0)
        uses = {tenant: account.get_use(tenant) for tenant in "abc"}
        assert {name: (use.running, len(use.waiters), use.requests) for name, use in uses.items()} == {
            "a": (1, 0, 1),
            "b": (0, 1, 0),
            "c": (0, 0, 0),
        }
        release.set()


async def look(gateway: Gateway) -> dict[str, limits_pb2.Limit]:
    reply = await gateway.llm.ListLimits(limits_pb2.ListLimitsRequest())
    return {f"{limit.name} {limit.subject}": limit for limit in reply.limits}


async def test_quotas_queues_and_breakers_are_reported_with_their_reopening_time(asking: Asking) -> None:
    quota = {"requestsPerMinute": 6, "concurrency": 1}
    script = [{"match": {"text": "break"}, "steps": [{"status": 503}]}, {"steps": [{"content": ["hello"]}]}]
    async with asking(script, quota=quota, retry={"maxAttempts": 1}) as gateway:
        idle = await look(gateway)
        for _ in range(FAILURES_MAX):
            await gateway.chat(text_message("user", "break"))
        broken = await look(gateway)
        await gateway.chat(model="idle")
        spent = await look(gateway)
        waiting = asyncio.create_task(gateway.chat(model="idle"))
        while not (queued := await look(gateway))["provider_queue sim"].used and not waiting.done():
            await asyncio.sleep(0.01)
        waiting.cancel()
    requests, calls = idle["provider_requests sim"], idle["provider_calls sim"]
    assert (requests.value, requests.used, requests.is_full, requests.period_ms) == (6, 0, False, 60_000)
    assert (requests.source, requests.source_name) == ("providers.json", "providers.sim.quota.requestsPerMinute")
    assert (calls.value, calls.used, calls.is_full) == (1, 0, False)
    assert "provider_tokens sim" not in idle
    assert not idle["model_breaker sim/sim-1"].is_full
    breaker = broken["model_breaker sim/sim-1"]
    assert (breaker.is_full, breaker.opens_at > 0, breaker.HasField("value")) == (True, True, False)
    assert (idle["model_breaker sim/sim-1"].breaker, breaker.breaker) == ("closed", "open")
    assert not broken["model_breaker sim/idle"].is_full
    full = spent["provider_requests sim"]
    assert (full.used, full.is_full, full.opens_at > 0) == (6, True, True)
    assert (queued["provider_queue sim"].used, queued["provider_queue sim"].value) == (1, WAITING_MAX)
