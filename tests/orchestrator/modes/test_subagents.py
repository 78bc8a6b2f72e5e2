"""Sub-agents: which may be called, what each sees, what its caller gets back, and what its end means for the run."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ProviderUnavailable
from headrace.v1 import llm_pb2, memory_pb2
from services.orchestrator.ids import subagent_id
from tests.support.orchestrator import MODEL, Serve, assert_paired, kinds, only, plans, read, results
from tests.support.orchestrator.crashes import Crashes, read_rest, restart, run_killed, run_whole
from tests.support.orchestrator.recorded_runs import RUNS, World
from tests.support.orchestrator.runs import read_recorded
from tests.support.orchestrator.steps import Step, answer, call, call_tool, content, finish
from tests.support.orchestrator.subagents import HELPER, PARENT, delegate_task, first_question, script_replies, texts_of
from tests.support.orchestrator.suite import serve_suite
from tests.support.order import Event, fold


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    """Return a `serve` with a second agent, `helper`, which `react` may call."""
    return partial(serve_suite, tmp_path, beside={"helper": HELPER})


def list_outcomes(events: list[Event]) -> list[dict[str, Any]]:
    return [json.loads(text) for text, _ in results(events) if "contextId" in text]


async def test_a_sub_agent_gets_only_its_task_and_returns_only_its_result(serve: Serve) -> None:
    inside = call_tool("look", call_id="call_0")  # The model numbers its calls from 0 again.
    async with serve(**PARENT) as suite:
        script_replies(
            suite,
            hello=[content("Let me see.") + delegate_task(agentKey="Helper") + finish("tool_calls"), answer("done")],
            find=[inside, answer("it is here")],
        )
        events = await suite.ask()
        history = await read_recorded(suite, suite.run_ids[0])
        for seq in range(len(events)):
            assert fold(events[:seq] + await read(suite.client, suite.run_ids[0], seq)) == fold(events)
        first, task, task_again, last = suite.llm.requests
    child = subagent_id(suite.run_ids[0], "call_0")
    assert "agentKey helper: Looks things up" in next(t for t in first.tools if t.name == "call_subagent").description
    assert [message.role for message in task.messages] == ["system", "user"]
    assert texts_of(task, "system")[0].startswith("You help with find it.")
    assert (task.model, texts_of(task, "user")) == ("small", ["find it"])
    assert {tool.name for tool in task.tools} == {"look"}
    assert texts_of(task_again, "tool") == ["seen {}"]
    assert texts_of(last, "assistant")[0] == "Let me see."
    assert json.loads(texts_of(last, "tool")[0]) == {"ok": True, "result": "it is here", "contextId": child, "loops": 2}
    start = only(events, "subagent.start")
    assert (start["subagentId"], start["parentId"], start["depth"]) == (child, suite.run_ids[0], 1)
    assert (start["agentKey"], start["goal"]) == ("helper", "find it")
    end = only(events, "subagent.end")
    assert (end["subagentId"], end["ok"], end["summary"]) == (child, True, "it is here")
    between = events[events.index(start) : events.index(end)]
    assert {event.get("subagentId") for event in between} == {child}
    assert events[-1]["usage"]["modelCalls"] == 4
    assert events[-1]["usage"]["toolCalls"] == 2
    assert fold(history) == fold(events)
    assert [event["type"] for event in history].count("subagent.end") == 1


async def test_examples_are_in_the_prompt_only_when_a_person_asks(serve: Serve) -> None:
    examples = "Q: {{date}}? A: short."
    helper = HELPER | {"react": {"systemPrompt": "You help.", "examples": examples}}
    async with serve(answer("done"), beside={"helper": helper}, **PARENT) as suite:
        script_replies(
            suite,
            hello=[delegate_task(agentKey="helper") + finish("tool_calls"), answer("done")],
            find=[answer("It is here.")],
            hi=[answer("done")],
        )
        await suite.ask()
        request_of_parent = next(request for request in suite.llm.requests if first_question(request) == "find it")
        await suite.ask("hi", agent="helper")
        request_of_person = suite.llm.requests[-1]
    assert examples not in texts_of(request_of_parent, "system")[0]
    assert f"\n\n{examples}" in texts_of(request_of_person, "system")[0]


async def test_a_sub_agent_without_a_key_gets_the_parents_model_and_backend_tools(serve: Serve) -> None:
    tools = {"toolConfig": {"backends": ["look", "todo_write", "ask_human"]}}
    async with serve(**(PARENT | tools)) as suite:
        script_replies(suite, hello=[delegate_task() + finish("tool_calls"), answer("done")], find=[answer("found")])
        await suite.ask()
        task = suite.llm.requests[1]
    assert task.model == "m"
    assert {tool.name for tool in task.tools} == {"look", "todo_write", "call_subagent"}
    assert texts_of(task, "system")[0].startswith("You are a sub-agent")


async def test_a_sub_agents_failure_is_a_result_for_the_parent(serve: Serve) -> None:
    broken = [*content("half a"), ProviderUnavailable("the provider is away")]
    calls = delegate_task("bad luck") + delegate_task("good luck", index=1)
    async with serve(**PARENT) as suite:
        script_replies(
            suite,
            hello=[calls + finish("tool_calls"), answer("done")],
            bad=[call_tool("look"), broken],
            good=[answer("found")],
        )
        events = await suite.ask()
        restart = await suite.ask("hello again")
    ends = {event["ok"] for event in events if event["type"] == "subagent.end"}
    assert ends == {True, False}
    failed = next(outcome for outcome in list_outcomes(events) if not outcome["ok"])
    assert (failed["error"], failed["loops"]) == ("PROVIDER_UNAVAILABLE", 1)
    end = next(event for event in events if event["type"] == "subagent.end" and not event["ok"])
    result = next(event for event in events if event["type"] == "tool.result" and not event["ok"])
    inside = [event["type"] for event in events if event.get("subagentId") == end["subagentId"]]
    assert inside[-2:] == ["content.end", "subagent.end"]
    assert events.index(end) < events.index(result)
    assert (events[-1]["type"], restart[-1]["type"]) == ("run.complete", "run.complete")


async def test_a_step_that_memory_refused_is_stored_before_later_ones(serve: Serve) -> None:
    """Seed 14464 of trials/simulation: an owner that died had stored the result of a call, but not the call."""
    steps, is_refused = list[int](), False
    async with serve(**PARENT) as suite:

        async def refuse_its_call(request: memory_pb2.AppendRequest) -> None:
            nonlocal is_refused
            messages = [message for line in request.lines for message in line.step.messages if line.step.context_id]
            if not is_refused and any(message.message.tool_calls for message in messages):
                is_refused = True
                raise ProviderUnavailable("the database is away")

        async def note(request: memory_pb2.AppendRequest) -> None:
            steps.extend(line.step.seq for line in request.lines if line.HasField("step"))

        suite.memory.before, suite.memory.after = refuse_its_call, note
        script_replies(suite, hello=[delegate_task() + finish("tool_calls"), answer("done")], find=[call_tool("look")])
        events = await suite.ask()
    assert not only(events, "subagent.end")["ok"]
    assert (is_refused, steps) == (True, [*range(1, len(steps) + 1)])


async def test_an_unknown_agent_and_invalid_arguments_get_error_results(serve: Serve) -> None:
    calls = delegate_task(agentKey="nobody") + call("call_subagent", "{}", index=1, call_id="b")
    async with serve(**PARENT) as suite:
        script_replies(suite, hello=[calls + finish("tool_calls"), answer("done")])
        events = await suite.ask()
    result_texts = [text for text, _ in results(events)]
    assert "there is no agent 'nobody' to call; agents: helper" in result_texts[0]
    assert "INVALID_ARGUMENTS" in result_texts[1]
    assert "subagent.start" not in kinds(events, "subagent.")


async def test_call_subagent_is_offered_only_if_agents_are_configured_or_mentioned(serve: Serve) -> None:
    async with serve(answer("done"), toolConfig={"backends": ["@core"]}, mentionable=["helper"]) as suite:
        await suite.ask()
        await suite.ask("ask @helper please")
        plain, mentioned = suite.llm.requests
    assert "call_subagent" not in {tool.name for tool in plain.tools}
    assert "call_subagent" in {tool.name for tool in mentioned.tools}


async def test_the_depth_of_sub_agents_is_limited_and_events_name_the_parent(serve: Serve) -> None:
    deeper = delegate_task("deeper and deeper") + finish("tool_calls")
    async with serve(**(PARENT | {"budget": {"maxDepth": 2}})) as suite:
        script_replies(
            suite, hello=[deeper, answer("done")], deeper=[deeper, deeper, answer("no further"), answer("up")]
        )
        events = await suite.ask()
        await suite.ask("hello again")
    starts = [event for event in events if event["type"] == "subagent.start"]
    assert [start["depth"] for start in starts] == [1, 2]
    assert starts[1]["parentId"] == starts[0]["subagentId"]
    assert any("there is no tool 'call_subagent'" in text for text, _ in results(events))
    assert events[-1]["type"] == "run.complete"


async def test_max_loops_limits_a_sub_agents_steps(serve: Serve) -> None:
    async with serve(**PARENT) as suite:
        looks = [call_tool("look", f'{{"at":{n}}}', call_id=f"c{n}") for n in range(2)]
        hello = [delegate_task(maxLoops=2) + finish("tool_calls"), answer("done")]
        script_replies(suite, hello=hello, find=[*looks, answer("so far")])
        events = await suite.ask()
    [outcome] = list_outcomes(events)
    assert (outcome["result"], outcome["loops"]) == ("so far", 3)


async def test_a_sub_agent_has_its_own_todos_without_reminders(serve: Serve) -> None:
    todos = json.dumps({"todos": [{"content": "mine", "status": "pending"}]})
    async with serve(**(PARENT | {"toolConfig": {"backends": ["todo_write"]}})) as suite:
        script_replies(
            suite,
            hello=[delegate_task() + finish("tool_calls"), answer("done")],
            find=[call_tool("todo_write", todos), answer("found")],
        )
        await suite.ask()
        requests = suite.llm.requests
        child = subagent_id(suite.run_ids[0], "call_0")
        state = await suite.memory.GetState(memory_pb2.GetStateRequest(chat_id=suite.chat_id, context_id=child), None)
        main = await suite.memory.GetState(memory_pb2.GetStateRequest(chat_id=suite.chat_id), None)
    assert "mine" in state.state
    assert "mine" not in main.state
    assert not any("Your todos" in text for request in requests for text in texts_of(request, "user"))


async def test_with_recap_the_parent_is_reminded_of_its_goal_after_a_sub_agent(serve: Serve) -> None:
    calls = content("I need two things.") + delegate_task("first thing") + delegate_task("second thing", index=1)
    async with serve(**(PARENT | {"memory": {"recap": {"enabled": True}}})) as suite:
        late: list[Step] = [0.1, *answer("number one")]
        hello = [calls + finish("tool_calls"), answer("done")]
        script_replies(suite, hello=hello, first=[late], second=[answer("number two")])
        events = await suite.ask()
        last = suite.llm.requests[-1]
        child = subagent_id(suite.run_ids[0], "call_0")
        state = await suite.memory.GetState(memory_pb2.GetStateRequest(chat_id=suite.chat_id, context_id=child), None)
    assert_paired(last)
    assert [message.role for message in last.messages][-3:] == ["tool", "tool", "user"]
    reminder = texts_of(last, "user")[-1]
    assert (
        reminder.index("Sub-goal: first thing")
        < reminder.index("Its result: number one")
        < reminder.index("second thing")
    )
    assert "You are back at depth 0.\nYour latest thought: I need two things." in reminder
    parent_context = json.loads(state.state)["parent_context"]
    assert (parent_context["subGoal"], parent_context["latestThought"], parent_context["depth"]) == (
        "first thing",
        "I need two things.",
        0,
    )
    assert events[-1]["type"] == "run.complete"


async def test_a_sub_agent_may_work_by_a_plan(serve: Serve) -> None:
    planned = plans.model(plans.add("look around"))

    def reply(request: llm_pb2.ChatRequest) -> list[Step]:
        assert_paired(request)
        if first_question(request) != "hello":
            return planned(request)
        calls = delegate_task(agentKey="planner") + finish("tool_calls")
        return answer("done") if texts_of(request, "tool") else calls

    async with serve(subagents=["planner"], beside={"planner": {"modelConfig": MODEL} | plans.agent()}) as suite:
        suite.llm.reply = reply
        events = await suite.ask()
        history = await read_recorded(suite, suite.run_ids[0])
    child = subagent_id(suite.run_ids[0], "call_0")
    assert list_outcomes(events) == [{"ok": True, "result": "the answer", "contextId": child, "loops": 4}]
    task = only(events, "task.complete")
    assert task["subagentId"] == child
    assert fold(history) == fold(events)


@pytest.mark.parametrize("recap", [False, True])
async def test_usage_of_sub_agents_is_charged_after_a_takeover(serve: Serve, recap: bool) -> None:
    agent, play, changes = RUNS["sub-agents"]
    async with serve(**changes, memory={"recap": {"enabled": recap}}) as suite:
        await suite.stop()
        World(suite, play)
        crashes = Crashes(suite)
        undisturbed, appends = await run_whole(suite, crashes, agent)
        for append in range(3, appends, 4):
            events_before = await run_killed(suite, crashes, agent, append=append)
            async with restart(suite) as client:
                events_after = await read_rest(client, events_before)
            assert events_after[-1]["usage"] == undisturbed[-1]["usage"]
            user_texts = texts_of(suite.llm.requests[-1], "user")
            assert sum("You are back at depth 0" in text for text in user_texts) == recap
