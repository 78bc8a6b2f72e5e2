"""Budgets over a real memory are reserved before they are spent; a day's usage adds up whatever process is killed."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace.client import Client
from headrace.errors import Overloaded
from headrace.v1 import llm_pb2, spend_pb2
from services.orchestrator.money.budgets import (
    BudgetsError,
    BudgetsFile,
    list_agents_below,
    parse_budgets,
    write_budgets,
)
from services.runtime.auth.identity import Identity
from tests.support.orchestrator import (
    Serve,
    Step,
    Suite,
    answer,
    as_json,
    ask_for,
    call,
    content,
    read,
    run_of,
    two_replicas,
)
from tests.support.orchestrator.crashes import Crashes, read_rest, restart, run_killed, run_whole, with_tools
from tests.support.orchestrator.prices import (
    CALL_USD,
    answer_at_full_price,
    priced_model,
    script_tree,
    spent_usd,
    tree,
    write_budget,
)
from tests.support.orchestrator.recorded_runs import RUNS, Play, World, delegating
from tests.support.order import Event
from tests.support.tiers import Take, at_places


def read_error(events: list[Event]) -> dict[str, Any]:
    assert events[-1]["type"] == "run.error", events[-1]
    return events[-1]["error"]


async def ask(client: Client, agent: str = "oneshot") -> list[Event]:
    return await ask_for(client, "hello", agent_key=agent)


async def read_total(client: Client) -> int:
    return (await client.usage()).total.cost_nano_usd


def sum_costs(runs: list[list[Event]]) -> int:
    return sum(round(spent_usd(events) * 1e9) for events in runs)


async def test_parallel_sub_agents_stay_within_a_budget_and_the_next_run_is_refused(
    serve: Serve, tmp_path: Path
) -> None:
    write_budget(tmp_path, 0.2)
    async with serve(**tree()) as suite:
        suite.llm.models = [priced_model()]
        script_tree(suite, ["react"] * 8, {"m": 10.0})
        events = await suite.ask()
        requests_before = len(suite.llm.requests)
        refused_run = await ask(suite.client)
        assert len(suite.llm.requests) == requests_before
        spent = await read_total(suite.client)
    assert 0 < spent == sum_costs([events]) <= 200_000_000
    for error in (read_error(events), read_error(refused_run)):
        assert error["code"] == "QUOTA_EXCEEDED"
        assert error["details"]["budgetId"] == "all"
        assert 0 < int(error["details"]["retryAfterMs"]) <= 31 * 86_400_000
        assert "opens again" in error["message"]


async def test_two_replicas_together_spend_exactly_the_budget(serve: Serve, tmp_path: Path) -> None:
    write_budget(tmp_path, 0.2)
    async with serve() as suite, two_replicas(suite) as (a, b):
        answer_at_full_price(suite)
        runs = await asyncio.gather(*(ask(replica.client) for _ in range(6) for replica in (a, b)))
        # Unspent reservations were returned: what is left is too little for another call.
        while (last := await ask(a.client))[-1]["type"] == "run.complete":
            runs.append(last)
        spent = await read_total(suite.client)
    assert spent == sum_costs(runs) == 200_000_000
    assert {events[-1]["type"] for events in runs} == {"run.complete", "run.error"}


async def test_the_reservations_of_a_killed_owner_are_returned(serve: Serve, tmp_path: Path) -> None:
    write_budget(tmp_path, 0.2)
    async with serve() as suite:
        answer_at_full_price(suite)
        await suite.stop()
        crashes = Crashes(suite)
        events_before = await run_killed(suite, crashes, "oneshot", event=5)
        async with restart(suite) as client:
            whole = [*events_before, *await read_rest(client, events_before)]
            runs = [whole]
            while (last := await ask(client))[-1]["type"] == "run.complete":
                runs.append(last)
        spent = await read_total(suite.client)
    assert read_error(last)["code"] == "QUOTA_EXCEEDED"
    # The killed owner's call may be in no sum, as its answer never came.
    assert spent == sum_costs(runs)
    assert 200_000_000 - spent < CALL_USD * 1e9


async def test_a_changed_budgets_file_applies_to_the_next_call_and_an_invalid_one_is_ignored(
    serve: Serve, tmp_path: Path
) -> None:
    write_budget(tmp_path, 0)
    async with serve() as suite:
        answer_at_full_price(suite)
        assert read_error(await ask(suite.client))["code"] == "QUOTA_EXCEEDED"
        for agent in ("react", "*"):
            (tmp_path / "budgets.yaml").write_text("budgets: [{id: x}]")
            await asyncio.sleep(0)
            write_budget(tmp_path, 0, agent=agent)
            async with asyncio.timeout(30):
                expected = "run.complete" if agent == "react" else "run.error"
                while (await ask(suite.client))[-1]["type"] != expected:
                    await asyncio.sleep(0.05)


async def test_without_rules_a_run_completes(serve: Serve) -> None:
    async with serve() as suite:
        answer_at_full_price(suite)
        assert (await ask(suite.client))[-1]["type"] == "run.complete"


def test_a_rule_applies_to_the_tenants_users_keys_and_agents_it_names() -> None:
    rules = parse_budgets(
        b"""
budgets:
  - {id: tenant, period: day, tenant: acme, usd: 1.5}
  - {id: each-user, period: month, user: "*", tokens: 1000, warnAt: 0.5}
  - {id: bob, period: day, user: bob, usd: 1}
  - {id: each-key, period: day, key: "*", usd: 0.000000001}
  - {id: each-agent, period: day, agent: "*", usd: 1}
  - {id: clerk, period: day, agent: clerk, usd: 1}
"""
    )
    ada, bob = Identity("acme", "ada", "api_key:a"), Identity("globex", "bob", "jwt:b")
    first = {budget.budget_id: budget for budget in rules.select(ada, {"chief", "clerk"})}
    assert [*first] == [
        *("tenant", "each-user/user=ada", "each-key/key=api_key:a"),
        *("each-agent/agent=chief", "each-agent/agent=clerk", "clerk"),
    ]
    assert (first["tenant"].nano_usd_max, first["tenant"].HasField("tokens_max")) == (1_500_000_000, False)
    assert (first["each-user/user=ada"].tokens_max, first["each-user/user=ada"].warn_at) == (1000, 0.5)
    assert first["each-key/key=api_key:a"].nano_usd_max == 1
    assert first["each-key/key=api_key:a"].key == "api_key:a"
    assert [budget.budget_id for budget in rules.select(bob, {"x"})] == [
        *("each-user/user=bob", "bob", "each-agent/agent=x")
    ]
    below = {"a": ("b",), "b": ("c", "a"), "c": ()}
    assert list_agents_below(["a", "d"], lambda key: below.get(key, ())) == {"a", "b", "c", "d"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("budgets: [{id: a, period: week, usd: 1}]", "period"),
        ("budgets: [{id: a, period: day}]", "usd or tokens"),
        ("budgets: [{id: a, period: day, usd: -1}]", "usd"),
        ("budgets: [{id: 'a b', period: day, usd: 1}]", "id"),
        ("budgets: [{id: a, period: day, usd: 1}, {id: a, period: day, usd: 2}]", "'a'"),
        ("budgets: [{id: a, period: day, usd: 1, warnAt: 2}]", "warnAt"),
        ("budgets: [{id: a, period: day, dollars: 1}]", "dollars"),
        ("[", "YAML"),
        ("[" * 5000, "YAML"),
        ("budgets: !!timestamp now", "YAML"),
    ],
)
def test_a_budgets_file_with_a_mistake_is_refused_naming_it(text: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(BudgetsError, match=problem):
        parse_budgets(text.encode())
    path = tmp_path / "budgets.yaml"
    path.write_text(text)
    file = BudgetsFile(path)
    file.reload()
    with pytest.raises(Overloaded):
        _ = file.current
    path.write_text("budgets: [{id: a, period: day, usd: 1}]")
    file.reload()
    path.write_text(text)
    file.reload()
    assert [rule.id for rule in file.current.rules] == ["a"]


def test_budgets_written_for_a_user_limit_the_same_and_name_no_other_tenants() -> None:
    rules = [
        {"id": "each", "period": "day", "tokens": 5},
        {"id": "ada", "period": "day", "tenant": "acme", "user": "ada", "tokens": 7, "warnAt": 0.5},
        {"id": "secret", "period": "month", "tenant": "bolt", "usd": 12.345},
    ]
    whole = parse_budgets(json.dumps({"budgets": rules}).encode())
    for who in (Identity("acme", "ada"), Identity("acme", "carl"), Identity("bolt", "bob")):
        text = write_budgets(whole, who)
        written = parse_budgets(text.encode())
        assert written.select(who, ["a"]) == whole.select(who, ["a"])
        assert written.limit_money
        assert ("bolt" in text, "secret" in text, "12.345" in text) == (who.tenant == "bolt",) * 3
    assert write_budgets(parse_budgets(b""), Identity("acme", "ada")) == ""


PRICE_USD = 0.000_123_4

NANO_PER_USD = 1_000_000_000

KILLS = (2, 4)
"""The second and third owner die after publishing this number of events."""


def set_prices(suite: Suite) -> None:
    """Give each call a different cost: 0.0001234 US dollars, plus a billionth more for each call."""
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


def read_sums(usage: dict[str, Any]) -> tuple[int, int, int, int]:
    cost_nano_usd = round(usage.get("costUsd", 0) * NANO_PER_USD)
    return usage.get("inputTokens", 0), usage.get("outputTokens", 0), usage.get("cachedTokens", 0), cost_nano_usd


def read_row_sums(row: spend_pb2.UsageRow) -> tuple[int, int, int, int]:
    return row.input_tokens, row.output_tokens, row.cached_tokens, row.cost_nano_usd


def sum_usages(ends: Sequence[Event]) -> tuple[int, ...]:
    return tuple(map(sum, zip(*(read_sums(end["usage"]) for end in ends), strict=True)))


async def kill_owners(suite: Suite, crashes: Crashes, events: list[Event]) -> Event:
    """Kill one owner of the run after the other, and return the run's end."""
    for generation, kill_after in enumerate(KILLS, 1):
        async with restart(suite) as client, client.attach(run_of(events), events[-1]["seq"]) as deltas:
            async for delta in deltas:
                events.append(as_json(delta))
                if events[-1]["seq"] > generation * 1_000_000 + kill_after:
                    crashes.kill(run_of(events), generation)
                    break
    async with restart(suite) as client:
        events_after = await read(client, run_of(events), events[-1]["seq"])
    return [*events, *events_after][-1]


WITH_INSIGHTS = "eight steps with insights"
"""With model calls next to the turns, which a replay does not repeat."""

CASES: dict[str, tuple[str, Play, dict[str, Any]]] = RUNS | {
    WITH_INSIGHTS: (
        "react",
        [*(call("look", f'{{"at":{n}}}', call_id=f"call_{n}") for n in range(8)), content("So.")],
        {"memory": {"recap": {"enabled": True, "insights": "llm"}}, "react": {"maxSteps": 14}},
    )
}


@at_places
@pytest.mark.parametrize(
    "case", ["three steps", "sub-agents", "a checked answer, its thoughts summed up", "a plan", WITH_INSIGHTS]
)
async def test_a_days_usage_is_the_sum_of_its_runs_whatever_owner_is_killed(
    serve: Serve, case: str, take: Take
) -> None:
    agent, play, changes = CASES[case]
    async with serve(**with_tools(changes)) as suite:
        await suite.stop()  # It would take over the runs, as their owners have its name.
        World(suite, play)
        suite.tools.result_chars = 900 if case == WITH_INSIGHTS else 0
        suite.llm.aside["insight"] = answer("1. It is 330 m high.\n")
        set_prices(suite)
        crashes, ends = Crashes(suite), list[Event]()
        undisturbed, appends = await run_whole(suite, crashes, agent)
        ends.append(undisturbed[-1])
        for append in take(range(1, appends), case):
            events_before = await run_killed(suite, crashes, agent, append=append)
            ends.append(await kill_owners(suite, crashes, events_before))
        assert bool(suite.llm.aside_requests) == (case == WITH_INSIGHTS)
        usage = await suite.client.usage(group_by=["model", "agent"])
        for usage_of_end in [end["usage"] for end in ends]:
            calls = usage_of_end["cachedTokens"] // 3
            assert (usage_of_end["reasoningTokens"], usage_of_end["cacheWriteTokens"]) == (2 * calls, calls)
            assert usage_of_end["estimated"] is True
        # Runs that have lost too many owners end as interrupted.
        assert {end["type"] for end in ends} <= {"run.complete", "run.error"}
        assert read_row_sums(usage.total) == sum_usages(ends)
        assert {row.model for row in usage.rows} == {"scripted/m"}


async def test_each_agent_is_charged_its_own_model_calls(serve: Serve) -> None:
    changes = RUNS["sub-agents"][2]

    def play(request: llm_pb2.ChatRequest) -> list[Step]:
        messages = [message for message in request.messages if message.role != "system"]
        if messages[0].content[0].text == "hello" and messages[-1].role != "tool":
            steps = delegating(request)
            for step in steps:
                if isinstance(step, llm_pb2.LlmDelta) and step.tool_call.name:
                    step.tool_call.arguments = step.tool_call.arguments.replace("{", '{"agentKey": "oneshot", ', 1)
            return steps
        return answer("Fine.")

    async with serve(**changes) as suite:
        suite.llm.reply = play
        set_prices(suite)
        end = (await suite.ask())[-1]
        rows = (await suite.client.usage(group_by=["agent"])).rows
        assert {row.agent_key: row.model_calls for row in rows} == {"react": 2, "oneshot": 2}
        assert sum(row.cost_nano_usd for row in rows) == read_sums(end["usage"])[3]
