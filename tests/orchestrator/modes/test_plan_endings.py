"""Runs with a plan that a budget, a model's error or a cancel ends, at any turn and any event."""

from __future__ import annotations

import pytest

from headrace.errors import ProviderAuthentication
from headrace.v1 import llm_pb2
from tests.support.orchestrator import Serve, Suite, as_json
from tests.support.orchestrator.events import run_of
from tests.support.orchestrator.plans import STRATEGIES, Reply, agent, ask_checked, busy_model, check_pairs, plan_of
from tests.support.orchestrator.steps import Step, content
from tests.support.order import Event, check_order
from tests.support.tiers import Take, at_places


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(("limit", "counts"), [("ModelCalls", (1, 2, 3, 5, 7)), ("ToolCalls", (1, 2, 3))])
async def test_a_budget_of_calls_may_end_at_any_turn(
    serve: Serve, strategy: str, limit: str, counts: tuple[int, ...]
) -> None:
    for calls in counts:
        async with serve(**agent(strategy), budget={f"max{limit}": calls}) as suite:
            events = await ask_checked(suite, busy_model())
            assert (events[-1]["type"], events[-1]["finishReason"]) == ("run.complete", "budget"), calls
            used = events[-1]["usage"]
            assert (used["modelCalls"] - 1 if limit == "ModelCalls" else used["toolCalls"]) == calls
            assert not set(plan_of(events).values()) & {"init", "in_progress"}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("budget", [{"maxTokens": 40}, {"timeoutMs": 80}])
async def test_another_budget_used_up_ends_the_run(serve: Serve, strategy: str, budget: dict[str, int]) -> None:
    def slowly(request: llm_pb2.ChatRequest) -> list[Step]:
        return [0.02, *reply(request)]

    reply = busy_model()
    async with serve(**agent(strategy), budget=budget) as suite:
        events = await ask_checked(suite, slowly)
        assert (events[-1]["type"], events[-1]["error"]["code"]) == ("run.error", "BUDGET_EXCEEDED")


@at_places
@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_a_model_error_at_any_turn_is_an_honest_end_and_the_next_message_works(
    serve: Serve, strategy: str, take: Take
) -> None:
    async with serve(**agent(strategy)) as suite:
        await ask_checked(suite, busy_model())
        for turn in take(range(len(suite.llm.requests)), strategy):
            suite.llm.requests.clear()
            events = await ask_checked(suite, failing_at(suite, turn))
            failed = [event for event in events if event["type"] == "task.fail"]
            if events[-1]["type"] == "run.error":
                assert events[-1]["error"]["code"] == "PROVIDER_AUTHENTICATION"
            else:
                assert strategy == "PARALLEL"
                assert len(failed) == 1
        assert (await ask_checked(suite, busy_model()))[-1]["type"] == "run.complete"


@at_places
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("mode", ["now", "after_step"])
async def test_a_cancel_at_any_event_ends_the_run_and_the_next_message_works(
    serve: Serve, strategy: str, mode: str, take: Take
) -> None:
    async with serve(**agent(strategy)) as suite:
        whole = await ask_checked(suite, busy_model())
        step = max(1, len(whole) // 12)
        for at in take(range(3, len(whole) - 1, step), strategy + mode):
            events = await cancelled(suite, at, mode)
            assert events[-1]["type"] in ("run.cancel", "run.complete")
            if events[-1]["type"] == "run.cancel":
                assert not [event for event in events if event["type"] == "task.fail"]
        assert (await ask_checked(suite, busy_model()))[-1]["type"] == "run.complete"


def failing_at(suite: Suite, turn: int) -> Reply:
    """A model whose answer breaks off at a turn, counted from 0."""
    reply = busy_model()

    def failing(request: llm_pb2.ChatRequest) -> list[Step]:
        if len(suite.llm.requests) == turn:
            return [*content("begun"), ProviderAuthentication("no key")]
        return reply(request)

    return failing


async def cancelled(suite: Suite, at: int, mode: str) -> list[Event]:
    """A run that is cancelled at an event."""
    suite.llm.reply = busy_model()
    events: list[Event] = []
    async with suite.client.ask("hello", agent_key="react", chat_id=suite.chat_id) as deltas:
        async for delta in deltas:
            events.append(as_json(delta))
            if len(events) == at:
                run_id = run_of(events)
                await suite.client.cancel(run_id, mode=mode)
    check_order(events)
    check_pairs(suite)
    return events
