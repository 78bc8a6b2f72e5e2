"""What the orchestrator shows Prometheus."""

from __future__ import annotations

import asyncio

from prometheus_client import REGISTRY

from headrace.errors import Overloaded
from tests.support.orchestrator import Serve
from tests.support.orchestrator.compaction import ANSWER, SMALL, compacted_at
from tests.support.orchestrator.steps import answer, content, finish
from tests.support.waiting import wait_until

CHAT = "22222222-2222-4222-8222-222222222222"


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def live() -> dict[str, float]:
    return {state: value("headrace_runs", state=state) for state in ("queued", "running", "waiting")}


async def test_live_runs_are_shown_by_what_they_do(serve: Serve) -> None:
    before = value("headrace_runs_ended_total", state="completed", error="")
    async with serve([*content("a"), 1.0, *finish()], answer("b")) as suite:
        first = asyncio.create_task(suite.ask("one", chat_id=CHAT))
        async with asyncio.timeout(50):
            await wait_until(lambda: live() == {"queued": 0, "running": 1, "waiting": 0})
            second = asyncio.create_task(suite.ask("two", chat_id=CHAT))
            await wait_until(lambda: live() == {"queued": 1, "running": 1, "waiting": 0})
            await first
            await second
            while any(live().values()):
                await asyncio.sleep(0.01)
    assert value("headrace_runs_ended_total", state="completed", error="") == before + 2
    assert REGISTRY.get_sample_value("headrace_runs", {"state": "running"}) is None


async def test_a_run_that_failed_is_counted_by_its_error(serve: Serve) -> None:
    before = value("headrace_runs_ended_total", state="failed", error="OVERLOADED")
    async with serve([Overloaded("full")]) as suite:
        await suite.ask()
    assert value("headrace_runs_ended_total", state="failed", error="OVERLOADED") == before + 1


async def test_compactions_are_counted(serve: Serve) -> None:
    before = value("headrace_compactions_total", trigger="auto", outcome="complete")
    async with serve(ANSWER) as suite:
        suite.llm.models = [SMALL]
        await compacted_at(suite)
    # Once before the last run's turn; and perhaps once more behind it already.
    assert value("headrace_compactions_total", trigger="auto", outcome="complete") - before in (1, 2)
