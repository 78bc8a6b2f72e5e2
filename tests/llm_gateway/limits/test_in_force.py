"""Quotas and breakers as limits in force."""

from __future__ import annotations

import asyncio

from headrace.v1 import limits_pb2
from services.llm_gateway.limits.breaker import FAILURES_MAX
from services.llm_gateway.limits.quota import WAITING_MAX
from tests.support.llm_gateway.gateway import Asking, Gateway, text_message


async def look(gateway: Gateway) -> dict[str, limits_pb2.Limit]:
    reply = await gateway.llm.ListLimits(limits_pb2.ListLimitsRequest())
    return {f"{limit.name} {limit.subject}": limit for limit in reply.limits}


async def test_quotas_queues_and_breakers_are_told_with_when_they_open(asking: Asking) -> None:
    quota = {"requestsPerMinute": 6, "concurrency": 1}
    script = [{"match": {"text": "break"}, "steps": [{"status": 503}]}, {"steps": [{"content": ["hello"]}]}]
    async with asking(script, quota=quota, retry={"maxAttempts": 1}) as gateway:
        idle = await look(gateway)
        for _ in range(FAILURES_MAX):
            await gateway.hear(text_message("user", "break"))
        broken = await look(gateway)
        await gateway.hear(model="idle")
        spent = await look(gateway)
        waiting = asyncio.create_task(gateway.hear(model="idle"))
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
    assert not broken["model_breaker sim/idle"].is_full
    full = spent["provider_requests sim"]
    assert (full.used, full.is_full, full.opens_at > 0) == (6, True, True)
    assert (queued["provider_queue sim"].used, queued["provider_queue sim"].value) == (1, WAITING_MAX)
