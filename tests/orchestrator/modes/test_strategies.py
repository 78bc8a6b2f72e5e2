"""PARALLEL runs groups of tasks at once and asks the planner again; RECURSIVE splits composite tasks, then returns to
their parents. Runs of each strategy end correctly, wherever a budget, a model's error or a cancel ends them.
"""

from collections import Counter
from itertools import count

import pytest

from headrace.errors import InvalidRequest, ProviderAuthentication
from headrace.v1 import llm_pb2
from tests.support.orchestrator import Serve, Step, Suite, answer, as_json, call, content, finish, plans, run_of
from tests.support.orchestrator.watched_memory import Refusal
from tests.support.order import Event, check_order
from tests.support.tiers import Take, at_places

GROUPS = [{"description": f"part {number}", "group": "parts"} for number in range(8)]


async def test_a_group_runs_at_the_same_time_and_is_reported_in_plan_order(serve: Serve) -> None:
    def work(request: llm_pb2.ChatRequest) -> list[Step]:
        number = int(plans.task_of(request)[-1])
        return [0.3 - 0.03 * number, *content(f"did {number}"), *finish()]

    def planner(request: llm_pb2.ChatRequest) -> list[Step]:
        return answer("all done")

    async with serve(**plans.agent("PARALLEL")) as suite:
        events = await plans.ask_checked(suite, plans.model(plans.add(*GROUPS), work=work, planner=planner))
        assert plans.outline(events)[:8] == [f"start part {number}" for number in range(8)]
        assert events[-1]["type"] == "run.complete"
        feedback = next(
            request for request in suite.llm.requests if request.stage == "plan" and request.tool_choice == "auto"
        )
        reports = [plans.text_of(message) for message in feedback.messages if "has ended" in plans.text_of(message)]
        assert [report[-1] for report in reports] == [str(number) for number in range(8)]
        first_turns = [request for request in suite.llm.requests if plans.last_text(request).startswith("Your task")]
        assert len(first_turns) == 8
        assert {len(request.messages) for request in first_turns} == {5}, "all start with the same messages"


async def test_a_task_whose_end_the_log_refuses_gets_no_second_end(serve: Serve) -> None:
    """Seed 308 of the simulated worlds."""
    refuse_end = Refusal("task_complete", InvalidRequest("refused"))
    async with serve(**plans.agent("PARALLEL"), before_append=refuse_end) as suite:
        model = plans.model(plans.add(*GROUPS[:2]), work=lambda _: answer("did"), planner=lambda _: answer("did"))
        events = await plans.ask_checked(suite, model)
    ends = Counter(event["taskId"] for event in events if event["type"] in ("task.complete", "task.fail"))
    assert set(ends.values()) <= {1}
    assert events[-1]["type"] == "run.error"


async def test_at_most_max_parallel_tasks_run_at_the_same_time(serve: Serve) -> None:
    async with serve(**plans.agent("PARALLEL", maxParallel=2)) as suite:
        running: list[int] = []

        def work(request: llm_pb2.ChatRequest) -> list[Step]:
            running.append(suite.llm.open)
            return [0.05, *content("did"), *finish()]

        model = plans.model(plans.add(*GROUPS), work=work, planner=lambda request: answer("done"))
        await plans.ask_checked(suite, model)
        assert max(running) <= 1, "at most one other is open"


async def test_a_failing_task_of_a_group_fails_alone_and_the_planner_continues(serve: Serve) -> None:
    rounds = iter([plans.add("once more", call_id="plan_2"), answer("that is all")])

    def work(request: llm_pb2.ChatRequest) -> list[Step]:
        if plans.task_of(request) == "part 1":
            return [*content("half"), *call("look"), 0.05, ProviderAuthentication("no key")]
        return answer("did")

    def report_status(request: llm_pb2.ChatRequest) -> list[Step]:
        return plans.update(request, "failed" if plans.task_of(request) == "part 2" else "completed")

    async with serve(**plans.agent("PARALLEL")) as suite:
        reply = plans.model(
            plans.add(*GROUPS[:4]), work=work, report=report_status, planner=lambda request: next(rounds)
        )
        events = await plans.ask_checked(suite, reply)
        assert plans.plan_of(events) == {
            "part 0": "completed", "part 1": "failed", "part 2": "failed", "part 3": "completed",
            "once more": "completed",
        }  # fmt: skip
        codes = {event["error"]["code"] for event in events if event["type"] == "task.fail"}
        assert codes == {"PROVIDER_AUTHENTICATION", "TASK_FAILED"}
        assert events[-1]["type"] == "run.complete"


async def test_feedback_rounds_end_after_max_rounds(serve: Serve) -> None:
    async with serve(**plans.agent("PARALLEL", maxRounds=2, execute={"systemPrompt": plans.EXECUTE})) as suite:
        number = count()
        reply = plans.model(
            plans.add("look"), planner=lambda request: plans.add("more", call_id=f"more_{next(number)}")
        )
        events = await plans.ask_checked(suite, reply)
        assert plans.outline(events).count("start more") == 2
        assert events[-1]["type"] == "run.complete"


async def test_a_composite_task_is_split_and_later_tasks_are_restated_after_each_part(serve: Serve) -> None:
    prompts: list[str] = []

    def planner(request: llm_pb2.ChatRequest) -> list[Step]:
        text = plans.last_text(request)
        prompts.append(text)
        if "is to be split" in text:
            return [*content("two parts"), *plans.add("flour", "water", call_id="parts")]
        open_tasks = {line[2:10]: line[12:] for line in text.splitlines() if line.startswith("- ")}
        if "(flour)" in text:
            [(water, _)] = open_tasks.items()
            return plans.restate({"taskId": water, "description": "cold water"}, {"description": "salt"})
        return plans.restate(
            *({"taskId": key, "description": value} for key, value in open_tasks.items() if value != "serve")
        )

    async with serve(**plans.agent("RECURSIVE"), budget={"maxModelCalls": 60}) as suite:
        tasks = [{"description": "dough", "composite": True}, "bake", "serve"]
        events = await plans.ask_checked(suite, plans.model(plans.add(*tasks), planner=planner))
        assert plans.outline(events) == [
            "start dough", "start flour", "complete flour", "start cold water", "complete cold water",
            "start salt", "complete salt", "complete dough", "start bake", "complete bake", "run.complete",
        ]  # fmt: skip
        assert plans.plan_of(events) == {
            "dough": "completed", "flour": "completed", "cold water": "completed", "salt": "completed",
            "serve": "skipped", "bake": "completed",
        }  # fmt: skip
        restate_prompt = next(text for text in prompts if "(flour)" in text)
        assert all(
            part in restate_prompt for part in ("completed", "did flour", "Part of: dough", "two parts", "water")
        )
        final_plan = [event["plan"] for event in events if event["type"] == "plan.update"][-1]
        parents = {task["description"]: task.get("parentTaskId") for task in final_plan}
        assert parents["salt"] == parents["flour"] == final_plan[0]["taskId"]


async def test_a_task_at_the_maximum_depth_is_not_split(serve: Serve) -> None:
    def planner(request: llm_pb2.ChatRequest) -> list[Step]:
        if "is to be split" in plans.last_text(request):
            return plans.add({"description": "deeper", "composite": True}, call_id=f"split_{len(suite.llm.requests)}")
        return plans.restate()

    async with serve(**plans.agent("RECURSIVE"), budget={"maxDepth": 2}) as suite:
        model = plans.model(plans.add({"description": "deep", "composite": True}), planner=planner)
        events = await plans.ask_checked(suite, model)
        assert plans.outline(events) == [
            "start deep", "start deeper", "start deeper", "complete deeper", "complete deeper", "complete deep",
            "run.complete",
        ]  # fmt: skip


@pytest.mark.parametrize("strategy", plans.STRATEGIES)
@pytest.mark.parametrize(("limit", "counts"), [("ModelCalls", (1, 2, 3, 5, 7)), ("ToolCalls", (1, 2, 3))])
async def test_a_call_budget_used_up_at_any_turn_ends_with_an_answer(
    serve: Serve, strategy: str, limit: str, counts: tuple[int, ...]
) -> None:
    for calls in counts:
        async with serve(**plans.agent(strategy), budget={f"max{limit}": calls}) as suite:
            events = await plans.ask_checked(suite, plans.busy_model())
            assert (events[-1]["type"], events[-1]["finishReason"]) == ("run.complete", "budget"), calls
            used = events[-1]["usage"]
            assert (used["modelCalls"] - 1 if limit == "ModelCalls" else used["toolCalls"]) == calls
            assert not set(plans.plan_of(events).values()) & {"init", "in_progress"}


@pytest.mark.parametrize("strategy", plans.STRATEGIES)
@pytest.mark.parametrize("budget", [{"maxTokens": 40}, {"timeoutMs": 80}])
async def test_a_token_or_time_budget_used_up_fails_the_run(
    serve: Serve, strategy: str, budget: dict[str, int]
) -> None:
    def slowly(request: llm_pb2.ChatRequest) -> list[Step]:
        return [0.02, *reply(request)]

    reply = plans.busy_model()
    async with serve(**plans.agent(strategy), budget=budget) as suite:
        events = await plans.ask_checked(suite, slowly)
        assert (events[-1]["type"], events[-1]["error"]["code"]) == ("run.error", "BUDGET_EXCEEDED")


@at_places
@pytest.mark.parametrize("strategy", plans.STRATEGIES)
async def test_a_model_error_at_any_turn_ends_correctly_and_the_next_query_succeeds(
    serve: Serve, strategy: str, take: Take
) -> None:
    async with serve(**plans.agent(strategy)) as suite:
        await plans.ask_checked(suite, plans.busy_model())
        for turn in take(range(len(suite.llm.requests)), strategy):
            suite.llm.requests.clear()
            events = await plans.ask_checked(suite, make_failing_model(suite, turn))
            failed = [event for event in events if event["type"] == "task.fail"]
            if events[-1]["type"] == "run.error":
                assert events[-1]["error"]["code"] == "PROVIDER_AUTHENTICATION"
            else:
                assert strategy == "PARALLEL"
                assert len(failed) == 1
        assert (await plans.ask_checked(suite, plans.busy_model()))[-1]["type"] == "run.complete"


@at_places
@pytest.mark.parametrize("strategy", plans.STRATEGIES)
@pytest.mark.parametrize("mode", ["now", "after_step"])
async def test_a_cancel_at_any_event_ends_the_run_and_the_next_query_succeeds(
    serve: Serve, strategy: str, mode: str, take: Take
) -> None:
    async with serve(**plans.agent(strategy)) as suite:
        whole = await plans.ask_checked(suite, plans.busy_model())
        step = max(1, len(whole) // 12)
        for event_number in take(range(3, len(whole) - 1, step), strategy + mode):
            events = await ask_and_cancel(suite, event_number, mode)
            assert events[-1]["type"] in ("run.cancel", "run.complete")
            if events[-1]["type"] == "run.cancel":
                assert not [event for event in events if event["type"] == "task.fail"]
        assert (await plans.ask_checked(suite, plans.busy_model()))[-1]["type"] == "run.complete"


def make_failing_model(suite: Suite, turn: int) -> plans.Reply:
    """Return a model whose answer breaks off at a turn, counted from 0."""
    reply = plans.busy_model()

    def failing(request: llm_pb2.ChatRequest) -> list[Step]:
        if len(suite.llm.requests) == turn:
            return [*content("begun"), ProviderAuthentication("no key")]
        return reply(request)

    return failing


async def ask_and_cancel(suite: Suite, event_number: int, mode: str) -> list[Event]:
    """Run a query and cancel it at this event."""
    suite.llm.reply = plans.busy_model()
    events: list[Event] = []
    async with suite.client.ask("hello", agent_key="react", chat_id=suite.chat_id) as deltas:
        async for delta in deltas:
            events.append(as_json(delta))
            if len(events) == event_number:
                run_id = run_of(events)
                await suite.client.cancel(run_id, mode=mode)
    check_order(events)
    plans.check_pairs(suite)
    return events
