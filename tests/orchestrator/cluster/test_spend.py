"""What runs have cost: what the days' sums say is what their ends say, whoever was killed on the way.

The sums are those of the real memory; prices are such that sums of floats would not be exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from headrace.v1 import llm_pb2, spend_pb2
from tests.support.orchestrator import Serve, Step, Suite, answer, as_json, read, run_of
from tests.support.orchestrator.crashes import Crashes, changes_of, restart, run_killed, run_whole
from tests.support.orchestrator.recorded_runs import RUNS, World, delegating
from tests.support.order import Event
from tests.support.tiers import Take, at_places

PRICE_USD = 0.000_123_4

NANO_PER_USD = 1_000_000_000

KILLS = (2, 4)
"""After so many events that the second and third owner publish they die, too."""


def price(suite: Suite) -> None:
    """Let each call have a cost of its own: 0.0001234 US dollars and a billionth more than the one before."""
    play, calls = suite.llm.reply, 0

    def reply(request: llm_pb2.ChatRequest) -> list[Step]:
        nonlocal calls
        assert play is not None
        steps: list[Step] = []
        for step in play(request):
            if isinstance(step, llm_pb2.LlmDelta) and step.HasField("usage"):
                calls += 1
                priced = llm_pb2.LlmDelta()
                priced.CopyFrom(step)
                priced.usage.cost_usd, priced.usage.cached_tokens = PRICE_USD + calls / NANO_PER_USD, 3
                priced.usage.reasoning_tokens, priced.usage.cache_write_tokens = 2, 1
                priced.usage.estimated = True
                step = priced
            steps.append(step)
        return steps

    suite.llm.reply = reply


def as_sums(usage: dict[str, Any]) -> tuple[int, int, int, int]:
    cost_nano_usd = round(usage.get("costUsd", 0) * NANO_PER_USD)
    return usage.get("inputTokens", 0), usage.get("outputTokens", 0), usage.get("cachedTokens", 0), cost_nano_usd


def sums(row: spend_pb2.UsageRow) -> tuple[int, int, int, int]:
    return row.input_tokens, row.output_tokens, row.cached_tokens, row.cost_nano_usd


def add(ends: Sequence[Event]) -> tuple[int, ...]:
    return tuple(map(sum, zip(*(as_sums(end["usage"]) for end in ends), strict=True)))


async def go_on(suite: Suite, crashes: Crashes, seen: list[Event]) -> Event:
    """Have one owner after the other die on the run, and return its end."""
    for generation, kill_after in enumerate(KILLS, 1):
        async with restart(suite) as client, client.attach(run_of(seen), seen[-1]["seq"]) as deltas:
            async for delta in deltas:
                seen.append(as_json(delta))
                if seen[-1]["seq"] > generation * 1_000_000 + kill_after:
                    crashes.kill(run_of(seen), generation)
                    break
    async with restart(suite) as client:
        rest = await read(client, run_of(seen), seen[-1]["seq"])
    return [*seen, *rest][-1]


INSIGHTS = {"recap": {"enabled": True, "insightsWindowSize": 2, "insights": "llm"}}
"""Questions beside the turns, which a replay does not ask again."""


@at_places
@pytest.mark.parametrize(
    "memory", [INSIGHTS, pytest.param({}, marks=pytest.mark.nightly)], ids=["insights too", "turns alone"]
)
@pytest.mark.parametrize("case", ["three steps", "sub-agents", "a checked answer, its thoughts summed up", "a plan"])
async def test_the_days_sum_is_that_of_the_runs_whoever_was_killed(
    serve: Serve, case: str, memory: dict[str, Any], take: Take
) -> None:
    agent, play, changes = RUNS[case]
    async with serve(**changes_of({"memory": memory} | changes)) as suite:
        await suite.stop()  # which would take the runs, as their owners have its name
        World(suite, play)
        suite.llm.aside["insight"] = answer("1. It is 330 m high.\n")
        price(suite)
        crashes, ends = Crashes(suite), list[Event]()
        alone, appends = await run_whole(suite, crashes, agent)
        ends.append(alone[-1])
        for append in take(range(1, appends), case):
            seen = await run_killed(suite, crashes, agent, append=append)
            ends.append(await go_on(suite, crashes, seen))
        assert bool(suite.llm.aside_requests) == bool(memory)
        usage = await suite.client.usage(group_by=["model", "agent"])
        for usage_of_end in [end["usage"] for end in ends]:
            calls = usage_of_end["cachedTokens"] // 3
            assert (usage_of_end["reasoningTokens"], usage_of_end["cacheWriteTokens"]) == (2 * calls, calls)
            assert usage_of_end["estimated"] is True
        # Runs that have lost too many owners are ended as interrupted.
        assert {end["type"] for end in ends} <= {"run.complete", "run.error"}
        assert sums(usage.total) == add(ends)
        assert {row.model for row in usage.rows} == {"scripted/m"}


async def test_each_agent_is_charged_what_it_asked(serve: Serve) -> None:
    changes = RUNS["sub-agents"][2]

    def play(request: llm_pb2.ChatRequest) -> list[Step]:
        said = [message for message in request.messages if message.role != "system"]
        if said[0].content[0].text == "hello" and said[-1].role != "tool":
            steps = delegating(request)
            for step in steps:
                if isinstance(step, llm_pb2.LlmDelta) and step.tool_call.name:
                    step.tool_call.arguments = step.tool_call.arguments.replace("{", '{"agentKey": "oneshot", ', 1)
            return steps
        return answer("Fine.")

    async with serve(**changes) as suite:
        suite.llm.reply = play
        price(suite)
        end = (await suite.ask())[-1]
        rows = (await suite.client.usage(group_by=["agent"])).rows
        assert {row.agent_key: row.model_calls for row in rows} == {"react": 2, "oneshot": 2}
        assert sum(row.cost_nano_usd for row in rows) == as_sums(end["usage"])[3]
