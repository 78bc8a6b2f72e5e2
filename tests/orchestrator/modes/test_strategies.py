"""PARALLEL runs groups at once and asks the planner again; RECURSIVE goes down into composite tasks and back up."""

from __future__ import annotations

from collections import Counter
from itertools import count

from headrace.errors import InvalidRequest, ProviderAuthentication
from headrace.v1 import llm_pb2, memory_pb2
from tests.support.orchestrator import Serve
from tests.support.orchestrator.plans import (
    EXECUTE,
    add,
    agent,
    ask_checked,
    last_text,
    model,
    outline,
    plan_of,
    restate,
    task_of,
    text_of,
    update,
)
from tests.support.orchestrator.steps import Step, answer, call, content, finish

GROUPS = [{"description": f"part {number}", "group": "parts"} for number in range(8)]


async def test_a_group_runs_at_the_same_time_and_is_reported_in_plan_order(serve: Serve) -> None:
    def work(request: llm_pb2.ChatRequest) -> list[Step]:
        number = int(task_of(request)[-1])
        return [0.3 - 0.03 * number, *content(f"did {number}"), *finish()]

    def planner(request: llm_pb2.ChatRequest) -> list[Step]:
        return answer("all done")

    async with serve(**agent("PARALLEL")) as suite:
        events = await ask_checked(suite, model(add(*GROUPS), work=work, planner=planner))
        assert outline(events)[:8] == [f"start part {number}" for number in range(8)]
        assert events[-1]["type"] == "run.complete"
        feedback = next(
            request for request in suite.llm.requests if request.stage == "plan" and request.tool_choice == "auto"
        )
        reports = [text_of(message) for message in feedback.messages if "has ended" in text_of(message)]
        assert [report[-1] for report in reports] == [str(number) for number in range(8)]
        first_turns = [request for request in suite.llm.requests if last_text(request).startswith("Your task")]
        assert len(first_turns) == 8
        assert {len(request.messages) for request in first_turns} == {5}, "all begin with the same messages"


async def test_a_task_whose_end_the_log_refuses_has_no_second_one(serve: Serve) -> None:
    """Seed 308 of the simulated worlds."""
    refused: list[memory_pb2.AppendRequest] = []

    async def refuse_ends(request: memory_pb2.AppendRequest) -> None:
        if not refused and any(line.event.event.HasField("task_complete") for line in request.lines):
            refused.append(request)
            raise InvalidRequest("refused")

    def work(request: llm_pb2.ChatRequest) -> list[Step]:
        return answer("did")

    async with serve(**agent("PARALLEL"), before_append=refuse_ends) as suite:
        events = await ask_checked(suite, model(add(*GROUPS[:2]), work=work, planner=lambda request: work(request)))
    ends = Counter(event["taskId"] for event in events if event["type"] in ("task.complete", "task.fail"))
    assert set(ends.values()) <= {1}
    assert events[-1]["type"] == "run.error"


async def test_no_more_tasks_than_allowed_run_at_the_same_time(serve: Serve) -> None:
    async with serve(**agent("PARALLEL", maxParallel=2)) as suite:
        running: list[int] = []

        def work(request: llm_pb2.ChatRequest) -> list[Step]:
            running.append(suite.llm.open)
            return [0.05, *content("did"), *finish()]

        await ask_checked(suite, model(add(*GROUPS), work=work, planner=lambda request: answer("done")))
        assert max(running) <= 1, "one other at most"


async def test_a_failing_task_of_a_group_fails_alone_and_the_planner_goes_on(serve: Serve) -> None:
    rounds = iter([add("once more", call_id="plan_2"), answer("that is all")])

    def work(request: llm_pb2.ChatRequest) -> list[Step]:
        if task_of(request) == "part 1":
            return [*content("half"), *call("look"), 0.05, ProviderAuthentication("no key")]
        return answer("did")

    def told(request: llm_pb2.ChatRequest) -> list[Step]:
        return update(request, "failed" if task_of(request) == "part 2" else "completed")

    async with serve(**agent("PARALLEL")) as suite:
        reply = model(add(*GROUPS[:4]), work=work, told=told, planner=lambda request: next(rounds))
        events = await ask_checked(suite, reply)
        assert plan_of(events) == {
            "part 0": "completed", "part 1": "failed", "part 2": "failed", "part 3": "completed",
            "once more": "completed",
        }  # fmt: skip
        codes = {event["error"]["code"] for event in events if event["type"] == "task.fail"}
        assert codes == {"PROVIDER_AUTHENTICATION", "TASK_FAILED"}
        assert events[-1]["type"] == "run.complete"


async def test_feedback_rounds_end(serve: Serve) -> None:
    async with serve(**agent("PARALLEL", maxRounds=2, execute={"systemPrompt": EXECUTE})) as suite:
        number = count()
        reply = model(add("look"), planner=lambda request: add("more", call_id=f"more_{next(number)}"))
        events = await ask_checked(suite, reply)
        assert outline(events).count("start more") == 2
        assert events[-1]["type"] == "run.complete"


async def test_a_composite_head_is_split_and_the_rest_restated_on_the_way_up(serve: Serve) -> None:
    shown: list[str] = []

    def planner(request: llm_pb2.ChatRequest) -> list[Step]:
        text = last_text(request)
        shown.append(text)
        if "is to be split" in text:
            return [*content("two parts"), *add("flour", "water", call_id="parts")]
        left = {line[2:10]: line[12:] for line in text.splitlines() if line.startswith("- ")}
        if "(flour)" in text:
            [(water, _)] = left.items()
            return restate({"taskId": water, "description": "cold water"}, {"description": "salt"})
        return restate(*({"taskId": key, "description": value} for key, value in left.items() if value != "serve"))

    async with serve(**agent("RECURSIVE"), budget={"maxModelCalls": 60}) as suite:
        tasks = [{"description": "dough", "composite": True}, "bake", "serve"]
        events = await ask_checked(suite, model(add(*tasks), planner=planner))
        assert outline(events) == [
            "start dough", "start flour", "complete flour", "start cold water", "complete cold water",
            "start salt", "complete salt", "complete dough", "start bake", "complete bake", "run.complete",
        ]  # fmt: skip
        assert plan_of(events) == {
            "dough": "completed", "flour": "completed", "cold water": "completed", "salt": "completed",
            "serve": "skipped", "bake": "completed",
        }  # fmt: skip
        back = next(text for text in shown if "(flour)" in text)
        assert all(part in back for part in ("completed", "did flour", "Part of: dough", "two parts", "water"))
        last = [event["plan"] for event in events if event["type"] == "plan.update"][-1]
        parents = {task["description"]: task.get("parentTaskId") for task in last}
        assert parents["salt"] == parents["flour"] == last[0]["taskId"]


async def test_a_list_at_the_greatest_depth_is_not_split_again(serve: Serve) -> None:
    def planner(request: llm_pb2.ChatRequest) -> list[Step]:
        if "is to be split" in last_text(request):
            return add({"description": "deeper", "composite": True}, call_id=f"split_{len(suite.llm.requests)}")
        return restate()

    async with serve(**agent("RECURSIVE"), budget={"maxDepth": 2}) as suite:
        events = await ask_checked(suite, model(add({"description": "deep", "composite": True}), planner=planner))
        assert outline(events) == [
            "start deep", "start deeper", "start deeper", "complete deeper", "complete deeper", "complete deep",
            "run.complete",
        ]  # fmt: skip
