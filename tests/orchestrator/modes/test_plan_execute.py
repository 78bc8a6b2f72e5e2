"""PLAN_EXECUTE: a plan, tasks with their own contexts, and a summary as the answer; errors end it correctly."""

import json
import re
from pathlib import Path

import pytest

from headrace.runs.fold import Fold, fold_events
from headrace.v1 import agent_pb2, llm_pb2, tools_pb2
from tests.support.orchestrator import MODEL, Serve, Suite, plans
from tests.support.orchestrator.plans import STRATEGIES, Reply, add, last_text, model, text_of
from tests.support.orchestrator.steps import Step, answer, call, call_tool, content, finish, reasoning
from tests.support.order import texts


async def test_tasks_run_in_order_and_the_answer_comes_last(serve: Serve) -> None:
    async with serve(**plans.agent()) as suite:
        events = await plans.ask_checked(suite, plans.model(plans.add("look", "write")))
        assert plans.outline(events) == ["start look", "complete look", "start write", "complete write", "run.complete"]
        assert plans.plan_of(events) == {"look": "completed", "write": "completed"}
        assert texts(events, "content") == ["did look", "did write", "the ", "answer"]
        assert [event["summary"] for event in events if event["type"] == "task.complete"] == ["did look", "did write"]
        assert events[-1]["finishReason"] == "stop"
        requests = suite.llm.requests
        assert [request.stage for request in requests] == ["plan", *["execute"] * 4, "summary"]
        assert [request.tool_choice for request in requests] == [
            "required", "auto", "_plan_update_task_", "auto", "_plan_update_task_", "none"
        ]  # fmt: skip
        assert [schema.name for schema in requests[0].tools] == ["_plan_add_tasks_"]
        assert [schema.name for schema in requests[1].tools] == [
            "look", "slow", "_plan_update_task_", "_plan_get_tasks_"
        ]  # fmt: skip
        assert not requests[0].reasoning.enabled


async def test_later_stages_see_the_files_of_earlier_ones(serve: Serve) -> None:
    section = {"systemPrompt": "You work on {{task_id}}. {{file_names}}."}
    async with serve(**plans.agent(execute=section, summary=section)) as suite:

        def work(request: llm_pb2.ChatRequest) -> list[Step]:
            suite.tools.files[f"made by {plans.task_of(request)}"] = b""
            return answer(f"did {plans.task_of(request)}")

        await plans.ask_checked(suite, plans.model(plans.add("look", "write"), work=work))
        prompts_by_stage = {request.stage: plans.system(request) for request in suite.llm.requests}
        first = plans.system(suite.llm.requests[1])
    assert "made by" not in first
    assert "made by look." in prompts_by_stage["execute"]
    assert "made by look\nmade by write." in prompts_by_stage["summary"]


async def test_a_context_has_the_steps_of_its_task_and_the_reports_of_others(serve: Serve) -> None:
    def work(request: llm_pb2.ChatRequest) -> list[Step]:
        if plans.task_of(request) == "look" and request.messages[-1].role == "user":
            return call_tool("look", '{"at":"it"}')
        return answer(f"did {plans.task_of(request)}")

    async with serve(**plans.agent()) as suite:
        await plans.ask_checked(suite, plans.model(plans.add("look", "write"), work=work))
        plan, *look, write, write_report, summary = suite.llm.requests
        assert plans.system(plan).startswith(plans.PLAN)
        assert plans.system(summary).startswith(plans.SUMMARY)
        assert plans.task_id(look[0]) == plans.task_id(look[-1]) != plans.task_id(write)
        assert any(message.name == "look" for message in look[-1].messages)
        assert len({tuple(schema.name for schema in request.tools) for request in (*look, write, write_report)}) == 1
        for later in (write, summary):
            message_texts = [plans.text_of(message) for message in later.messages]
            assert not any(message.name == "look" for message in later.messages)
            assert not any(text.startswith("Your task") and "look" in text.splitlines()[0] for text in message_texts)
            assert any("did look" in text and "completed" in text for text in message_texts)
        assert suite.llm.requests[0].messages[-1].role == "user"
        assert plans.last_text(write).startswith("Your task")
        suite.llm.requests.clear()
        await plans.ask_checked(suite, plans.model(plans.add("again")))
        message_texts = [plans.text_of(message) for message in suite.llm.requests[0].messages[1:]]
        assert (message_texts[0].splitlines()[0], message_texts[1:]) == ("hello", ["the answer", "hello"])
        assert "are left out here" in message_texts[0], "and it says that more was left out"


async def test_the_log_has_the_plan_in_run_steps_and_task_steps_under_their_contexts(
    serve: Serve, tmp_path: Path
) -> None:
    async with serve(**plans.agent()) as suite:
        events = await plans.ask_checked(suite, plans.model(plans.add("look")))
        log = (tmp_path / "data" / "chats" / f"{suite.chat_id}.json").read_text()
    steps = [line for line in map(json.loads, log.splitlines()) if line["_type"] == "step"]
    (task_id,) = (task["taskId"] for event in events if event["type"] == "plan.create" for task in event["plan"])
    task_steps = [step for step in steps if "taskId" in step]
    assert {(step["taskId"], step["contextId"], step["_stage"]) for step in task_steps} == {
        (task_id, f"task-{task_id}", "execute")
    }
    run_steps = [step for step in steps if "taskId" not in step]
    assert [step["_stage"] for step in run_steps] == ["plan", "plan", "execute", "execute", "summary"]
    statuses = [[task["status"] for task in step["plan"]["tasks"]] for step in run_steps if "plan" in step]
    assert statuses == [["init"], ["completed"], ["completed"], ["completed"]]
    assert not any("plan" in step for step in task_steps)


async def test_the_plan_tools_are_the_orchestrators_own(serve: Serve) -> None:
    async with serve(**plans.agent()) as suite:
        suite.tools.tools.append(tools_pb2.Tool(name="_plan_add_tasks_", parameters="{}", kind="backend"))
        events = await plans.ask_checked(suite, plans.model(plans.add("look")))
        starts = {event["toolName"]: event["toolType"] for event in events if event["type"] == "tool.start"}
        assert starts == {"_plan_add_tasks_": "orchestrator", "_plan_update_task_": "orchestrator"}
        assert not suite.tools.requests


async def test_with_deep_thinking_a_draft_with_reasoning_precedes_the_plan(serve: Serve) -> None:
    def planner(request: llm_pb2.ChatRequest) -> list[Step]:
        return plans.add("look")

    async with serve(**plans.agent(deep=True)) as suite:
        draft = [*reasoning("hm"), *content("first I look"), *finish()]
        events = await plans.ask_checked(suite, plans.model(draft, planner=planner))
        assert texts(events, "reasoning") == ["hm"]
        assert texts(events, "content")[0] == "first I look"
        first, second = suite.llm.requests[:2]
        assert (first.tool_choice, first.reasoning.enabled) == ("none", True)
        assert (second.tool_choice, second.reasoning.enabled) == ("required", False)
        assert second.messages[-1].role == "user"


@pytest.mark.parametrize("bad", ["", '{"tasks":[]}', '{"tasks":[{"what":1}]}'])
async def test_a_missing_or_invalid_plan_is_requested_once_more(serve: Serve, bad: str) -> None:
    first = [*(call("_plan_add_tasks_", bad) if bad else content("I would look")), *finish()]
    async with serve(**plans.agent()) as suite:
        events = await plans.ask_checked(suite, plans.model(first, planner=lambda request: plans.add("look")))
        assert plans.outline(events)[-1] == "run.complete"
        suite.llm.requests.clear()
        events = await plans.ask_checked(suite, plans.model(first))
        assert (events[-1]["type"], events[-1]["error"]["code"]) == ("run.error", "PLAN_MISSING")
        assert len(suite.llm.requests) == 2
        assert not [event for event in events if event["type"].startswith(("plan.", "task."))]


async def test_a_task_without_a_reported_status_fails_and_cancels_the_rest(serve: Serve) -> None:
    async with serve(**plans.agent()) as suite:
        model = plans.model(plans.add("look", "write", "print"), report=lambda request: answer("well"))
        events = await plans.ask_checked(suite, model)
        assert plans.outline(events) == ["start look", "fail look", "run.complete"]
        assert plans.plan_of(events) == {"look": "failed", "write": "canceled", "print": "canceled"}
        fail = next(event for event in events if event["type"] == "task.fail")
        assert fail["error"]["code"] == "TASK_NOT_UPDATED"
        assert [request.tool_choice for request in suite.llm.requests].count("_plan_update_task_") == 2
        assert texts(events, "content")[-2:] == ["the ", "answer"]


@pytest.mark.parametrize(
    ("status", "end", "status_of_rest"),
    [("failed", "fail", "canceled"), ("skipped", "cancel", "completed"), ("canceled", "cancel", "completed")],
)
async def test_a_task_ends_with_the_status_its_model_reports(
    serve: Serve, status: str, end: str, status_of_rest: str
) -> None:
    def report_status(request: llm_pb2.ChatRequest) -> list[Step]:
        return plans.update(request, status if plans.task_of(request) == "look" else "completed")

    async with serve(**plans.agent()) as suite:
        events = await plans.ask_checked(suite, plans.model(plans.add("look", "write"), report=report_status))
        assert plans.outline(events)[:2] == ["start look", f"{end} look"]
        assert plans.plan_of(events) == {"look": status, "write": status_of_rest}
        assert events[-1]["type"] == "run.complete"


async def test_invalid_plan_calls_get_an_error_result(serve: Serve) -> None:
    turns = iter(
        [
            call_tool("_plan_update_task_", '{"taskId":"ffffffff","status":"completed"}'),
            call_tool("_plan_update_task_", '{"status":"completed"}'),
            call_tool("_plan_get_tasks_"),
            answer("done"),
        ]
    )
    async with serve(**plans.agent()) as suite:
        events = await plans.ask_checked(suite, plans.model(plans.add("look"), work=lambda request: next(turns)))
        results = [event for event in events if event["type"] == "tool.result"]
        assert [result["ok"] for result in results] == [True, False, False, True, True]
        assert "there is no task 'ffffffff'" in results[1]["result"]
        assert "invalid arguments" in results[2]["result"]
        assert json.loads(results[3]["result"])["tasks"][0]["status"] == "in_progress"


async def test_a_status_reported_while_working_needs_no_extra_turn(serve: Serve) -> None:
    async with serve(**plans.agent()) as suite:
        events = await plans.ask_checked(suite, plans.model(plans.add("look"), work=plans.update))
        assert plans.outline(events) == ["start look", "complete look", "run.complete"]
        assert [request.stage for request in suite.llm.requests] == ["plan", "execute", "summary"]


async def test_a_task_has_max_steps_turns_with_one_tool_call_each(serve: Serve) -> None:
    def work(request: llm_pb2.ChatRequest) -> list[Step]:
        two = [*call("look", index=0, call_id="a"), *call("look", index=1, call_id="b")]
        return [*two, *finish("tool_calls")]

    async with serve(**plans.agent(maxSteps=2)) as suite:
        events = await plans.ask_checked(suite, plans.model(plans.add("look"), work=work))
        assert plans.outline(events) == ["start look", "complete look", "run.complete"]
        assert len(suite.tools.requests) == 2
        refused_results = [
            event for event in events if event["type"] == "tool.result" and "only one tool" in event["result"]
        ]
        assert len(refused_results) == 2


async def test_deep_think_chooses_the_mode_of_an_agent_with_both_sections(serve: Serve) -> None:
    async with serve(**(plans.agent() | {"mode": "REACT"})) as suite:
        suite.llm.turns = [answer("hi")]
        events = await suite.ask(deep_think=0)
        assert suite.llm.requests[-1].stage == "react"
        events = await plans.ask_checked(suite, plans.model(plans.add("look")), deep_think=1)
        assert plans.outline(events)[0] == "start look"


async def test_the_execute_section_sets_the_tool_policy_of_tasks(serve: Serve) -> None:
    execute = {"systemPrompt": "You work on {{task_id}}.", "toolPolicy": "REQUIRE"}
    async with serve(**plans.agent(execute=execute)) as suite:
        suite.llm.reply = plans.model(plans.add("a"))
        await suite.ask()
        choices = [request.tool_choice for request in suite.llm.requests if request.stage == "execute"]
        assert choices == ["required"] * 3, "the model called none, and was asked again twice"
    async with serve(**plans.agent(execute=execute | {"toolPolicy": "ALLOW"}), toolPolicy="REQUIRE") as suite:
        suite.llm.reply = plans.model(plans.add("a"))
        events = await suite.ask()
        choices = [request.tool_choice for request in suite.llm.requests if request.stage == "execute"]
        assert choices[0] == "auto"
    assert events[-1]["type"] == "run.complete"


ANSWER = "the answer"

DRAFT = answer("First I think.")


def plan_aloud(request: llm_pb2.ChatRequest) -> list[Step]:
    """A planner that comments on everything it does."""
    if request.tool_choice == "auto":
        return answer("Nothing more is needed.")
    if "has ended" in last_text(request):
        return answer("finish")
    return [*content("I plan."), *add("look")]


def reply_aloud(*, deep: bool = False) -> Reply:
    return model(DRAFT if deep else [*content("I plan."), *add("look")], planner=plan_aloud)


async def ask_and_fold(suite: Suite) -> tuple[str, Fold]:
    async with suite.client.ask("hello", agent_key="react", chat_id=suite.chat_id or None) as deltas:
        state = fold_events([delta async for delta in deltas])
    assert state.end is not None
    assert state.end.HasField("run_complete")
    suite.chat_id = state.chat_id
    return state.run_id, state


async def read_again(suite: Suite, run_id: str) -> list[list[agent_pb2.AgentDelta]]:
    """Return the run's events as a late reader gets them, and as the chat's history has them."""
    async with suite.client.attach(run_id) as deltas:
        attached = [delta async for delta in deltas]
    return [attached, list((await suite.client.chat(suite.chat_id)).events)]


def list_stages(deltas: list[agent_pb2.AgentDelta]) -> list[tuple[str, bool]]:
    """Return the stage of each text, and whether it is the answer."""
    stages: list[tuple[str, bool]] = []
    for delta in deltas:
        if (kind := delta.WhichOneof("payload")) in ("content_start", "content_snapshot"):
            payload = getattr(delta, kind)
            assert payload.HasField("is_answer")
            stages.append((payload.stage, payload.is_answer))
    return stages


@pytest.mark.parametrize("deep", [False, True], ids=["", "deep"])
@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_the_planners_text_is_not_part_of_the_answer(serve: Serve, strategy: str, deep: bool) -> None:
    async with serve(**plans.agent(strategy, deep=deep), budget={"maxModelCalls": 60}) as suite:
        suite.llm.reply = reply_aloud(deep=deep)
        async with suite.client.ask("hello", agent_key="react") as deltas:
            live = [delta async for delta in deltas]
        state = fold_events(live)
        suite.chat_id = state.chat_id
        assert state.answer == ANSWER
        stages = list_stages(live)
        assert stages[-1] == ("summary", True)
        assert set(stages[:-1]) == {("plan", False), ("execute", False)}
        for later in await read_again(suite, state.run_id):
            assert fold_events(later).answer == ANSWER
            assert list_stages(later) == stages
        suite.llm.requests.clear()
        await ask_and_fold(suite)
        message_texts = [text_of(message) for message in suite.llm.requests[0].messages[1:]]
        assert message_texts[1:] == [ANSWER, "hello"]
        assert re.fullmatch(r"hello\n\n\[Lines 2-\d+ of this chat are left out here, .*\]", message_texts[0])


async def test_a_sub_agent_that_plans_returns_its_summary(serve: Serve) -> None:
    turns = {"count": 0}

    def reply(request: llm_pb2.ChatRequest) -> list[Step]:
        if request.stage != "react":
            return reply_aloud()(request)
        turns["count"] += 1
        if turns["count"] > 1:
            return answer("told")
        arguments = json.dumps({"agentKey": "planner", "task": "hello"})
        return [*content("I ask."), *call("call_subagent", arguments), *finish("tool_calls")]

    planner = plans.agent("PARALLEL") | {"modelConfig": MODEL}
    async with serve(subagents=["planner"], beside={"planner": planner}) as suite:
        suite.llm.reply = reply
        run_id, state = await ask_and_fold(suite)
        assert state.answer == "told"
        [result] = [json.loads(block.result or "") for block in state.blocks.values() if block.name == "call_subagent"]
        assert result["result"] == ANSWER
        for later in await read_again(suite, run_id):
            state_read_again = fold_events(later)
            assert state_read_again.answer == "told"
            assert [block.text for block in state_read_again.blocks.values() if block.is_answer] == ["I ask.", "told"]
