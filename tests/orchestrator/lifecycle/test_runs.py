"""Runs end to end through the orchestrator's RPCs, with a scripted model and scripted tools."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.errors import ChatBusy, InvalidRequest, NotFound, OutOfRange, Overloaded, ProviderUnavailable, QueueFull
from headrace.v1 import llm_pb2, memory_pb2
from tests.orchestrator.conftest import Open, as_json, call, content, finish, reasoning
from tests.support.order import Event, fold, texts
from tests.support.timing import within


def types(events: list[Event]) -> list[str]:
    return [event["type"] for event in events]


def results(events: list[Event]) -> list[tuple[str, bool]]:
    return [(event["result"], event["ok"]) for event in events if event["type"] == "tool.result"]


def assert_paired(request: llm_pb2.ChatRequest) -> None:
    """Every call has its result right behind it, and every result its call."""
    waiting: list[str] = []
    for message in request.messages:
        if message.role == "tool":
            assert waiting, "a result without a call"
            assert message.tool_call_id == waiting.pop(0)
            continue
        assert not waiting, f"calls without results: {waiting}"
        waiting = [tool_call.id for tool_call in message.tool_calls]
    assert not waiting, f"calls without results: {waiting}"


ANSWER = content("All ", "good.") + finish()


async def test_deltas_pass_one_by_one_byte_for_byte(house: Open) -> None:
    odd = ["\n\n", " ", "ha", "lf", "é", "\u2028", "</think>"]
    async with house(reasoning("hm", "\n") + content(*odd) + finish()) as it:
        events = await it.ask(agent="oneshot")
    assert texts(events, "content") == odd
    assert texts(events, "reasoning") == ["hm", "\n"]
    assert events[-1]["finishReason"] == "stop"
    assert events[-1]["usage"] == {"inputTokens": 10, "outputTokens": 5, "modelCalls": 1, "toolCalls": 0}


async def test_react_calls_a_tool_and_answers_from_its_result(house: Open) -> None:
    async with house(reasoning("hm") + call("look", '{"at":1}') + finish("tool_calls"), ANSWER) as it:
        events = await it.ask()
        assert [request.arguments for request in it.tools.requests] == ['{"at":1}']
        second = it.llm.requests[1]
    assert results(events) == [('seen {"at":1}', True)]
    assert events[-1]["type"] == "run.complete"
    assert_paired(second)
    assert second.messages[-1].content[0].text == 'seen {"at":1}'
    assert second.messages[-2].reasoning_content == "hm"


async def test_between_two_turns_the_request_only_grows(house: Open) -> None:
    turn = reasoning("hm") + call("look") + finish("tool_calls")
    async with house(turn, reasoning("x") + call("look", '{"b":2}') + finish("tool_calls"), ANSWER) as it:
        await it.ask()
        first, second, third = (request.messages for request in it.llm.requests)
    assert list(second)[: len(first)] == list(first)
    assert list(third)[: len(second)] == list(second)


async def test_only_the_first_of_several_calls_runs_and_every_call_is_answered(house: Open) -> None:
    calls = call("look", '{"n":1}', call_id="a") + call("look", '{"n":2}', index=1, call_id="b")
    async with house(calls + finish("tool_calls"), ANSWER) as it:
        events = await it.ask()
        assert len(it.tools.requests) == 1
        assert it.llm.requests[0].parallel_tool_calls is False
        assert_paired(it.llm.requests[1])
    ran = dict(results(events))
    assert ran.pop('seen {"n":1}') is True
    assert [('"executed":false' in text, ok) for text, ok in ran.items()] == [(True, False)]


async def test_parallel_calls_run_together(house: Open) -> None:
    calls = call("look", '{"n":1}', call_id="a") + call("look", '{"n":2}', index=1, call_id="b")
    parallel = {"systemPrompt": "", "parallelToolCalls": True}
    async with house(calls + finish("tool_calls"), ANSWER, react=parallel) as it:
        it.tools.delay_s = 0.2
        events = await it.ask()
        assert_paired(it.llm.requests[1])
    kinds = types(events)
    assert kinds.index("tool.result") > len(kinds) - 1 - kinds[::-1].index("tool.output")
    assert sorted(text for text, _ in results(events)) == ['seen {"n":1}', 'seen {"n":2}']


async def test_ids_that_a_provider_repeats_are_made_unique(house: Open) -> None:
    turn = call("look", '{"n":1}') + finish("tool_calls")
    async with house(turn, call("look", '{"n":2}') + finish("tool_calls"), ANSWER) as it:
        events = await it.ask()
        assert_paired(it.llm.requests[2])
    ids = [event["toolId"] for event in events if event["type"] == "tool.start"]
    assert ids[0] == "call_1"
    assert len(set(ids)) == 2


async def test_used_up_steps_end_with_a_call_without_tools(house: Open) -> None:
    turns = [call("look", f'{{"n":{number}}}') + finish("tool_calls") for number in range(2)]
    async with house(*turns, ANSWER, react={"maxSteps": 2}) as it:
        events = await it.ask()
        assert [request.tool_choice for request in it.llm.requests] == ["auto", "auto", "none"]
    assert events[-1]["finishReason"] == "steps"


async def test_the_same_call_a_third_time_is_warned_about_and_a_fourth_ends_the_loop(house: Open) -> None:
    again = call("look") + finish("tool_calls")
    async with house(again, again, again, again, ANSWER) as it:
        events = await it.ask()
        assert len(it.tools.requests) == 3
    told = [text for text, _ in results(events)]
    assert ["warning" in text for text in told] == [False, False, True, False]
    assert '"executed":false' in told[3]
    assert events[-1]["finishReason"] == "stuck"


async def test_the_last_model_call_of_a_budget_is_followed_by_one_for_the_answer(house: Open) -> None:
    async with house(call("look") + finish("tool_calls"), ANSWER, budget={"maxModelCalls": 1}) as it:
        events = await it.ask()
    assert events[-1]["finishReason"] == "budget"
    assert events[-1]["usage"]["modelCalls"] == 2


async def test_calls_beyond_the_budget_are_answered_and_the_answer_is_asked_for(house: Open) -> None:
    async with house(call("look") + finish("tool_calls"), ANSWER, budget={"maxToolCalls": 0}) as it:
        events = await it.ask()
        await it.ask("and now?")
        assert_paired(it.llm.requests[-1])
        assert it.tools.requests == []
    assert '"executed":false' in results(events)[0][0]
    assert (events[-1]["finishReason"], events[-1]["usage"]["toolCalls"]) == ("budget", 0)


async def test_a_run_out_of_time_ends_and_frees_the_provider(house: Open) -> None:
    async with house([*content("One"), 3600.0], budget={"timeoutMs": 2000}) as it:
        events = await it.ask()
        assert it.llm.open == 0
    assert events[-1]["error"]["code"] == "BUDGET_EXCEEDED"
    assert texts(events, "content") == ["One"]


async def test_a_required_tool_is_asked_for_twice_more(house: Open) -> None:
    async with house(ANSWER, toolPolicy="REQUIRE") as it:
        events = await it.ask()
        assert [request.tool_choice for request in it.llm.requests] == ["required"] * 3
    assert events[-1]["error"]["code"] == "TOOL_REQUIRED"


@pytest.mark.parametrize("agent", ["react", "oneshot"])
async def test_a_model_without_an_answer_is_an_error(house: Open, agent: str) -> None:
    async with house(reasoning("hm") + finish()) as it:
        events = await it.ask(agent=agent)
    assert events[-1]["error"]["code"] == "NO_ANSWER"


async def test_arguments_cut_at_the_limit_are_never_executed(house: Open) -> None:
    async with house(call("look", '{"at": "Pa') + finish("length"), ANSWER) as it:
        events = await it.ask()
        assert it.tools.requests == []
        assert it.llm.requests[1].messages[-2].tool_calls[0].arguments == "{}"
    assert "cut at the token limit" in results(events)[0][0]
    assert events[-1]["type"] == "run.complete"


async def test_a_call_cut_before_its_arguments_is_not_executed_without_them(house: Open) -> None:
    bare: list[Any] = [llm_pb2.LlmDelta(tool_call=llm_pb2.ToolCallDelta(index=0, id="call_1", name="look"))]
    async with house(bare + finish("length"), bare + finish("tool_calls"), ANSWER) as it:
        events = await it.ask()
        assert len(it.tools.requests) == 1
    assert ["cut at the token limit" in text for text, _ in results(events)] == [True, False]


async def test_a_finish_that_nobody_knows_is_told_as_it_is(house: Open) -> None:
    async with house(content("four") + finish("ran_dry")) as it:
        events = await it.ask()
    assert events[-1]["finishReason"] == "ran_dry"


async def test_a_turn_that_says_nothing_is_followed_by_one_for_the_answer(house: Open) -> None:
    async with house(reasoning("hm") + finish(), ANSWER) as it:
        events = await it.ask()
    assert (events[-1]["finishReason"], events[-1]["usage"]["modelCalls"]) == ("stop", 2)


async def test_a_tool_that_ends_without_a_result_has_failed(house: Open) -> None:
    async with house(call("look") + finish("tool_calls"), ANSWER) as it:
        it.tools.outcome = False
        events = await it.ask()
    [(text, ok)] = results(events)
    assert "without a result" in text
    assert not ok


async def test_a_tool_nobody_offered_gets_an_answer_that_names_the_tools(house: Open) -> None:
    async with house(call("rm_rf") + finish("tool_calls"), ANSWER) as it:
        events = await it.ask()
        assert it.tools.requests == []
    assert "look, slow" in results(events)[0][0]


async def test_a_tools_service_that_fails_is_a_result_for_the_model(house: Open) -> None:
    async with house(call("look") + finish("tool_calls"), ANSWER) as it:
        it.tools.error = ProviderUnavailable("not today")
        events = await it.ask()
    assert results(events) == [('{"ok":false,"error":"PROVIDER_UNAVAILABLE","message":"not today"}', False)]
    assert events[-1]["type"] == "run.complete"


async def test_an_agents_missing_tool_is_reported_and_the_run_goes_on(house: Open) -> None:
    async with house(ANSWER, toolConfig={"backends": ["look", "gone"]}) as it:
        events = await it.ask()
    notice = next(event for event in events if event["type"] == "run.notice")
    assert notice["code"] == "TOOL_UNAVAILABLE"
    assert "'gone'" in notice["message"]
    assert events[-1]["type"] == "run.complete"


@pytest.mark.parametrize("before", [[], content("Hel"), call("look", '{"at"')])
async def test_an_error_of_the_model_ends_the_run_and_the_next_message_works(house: Open, before: Any) -> None:
    async with house([*before, Overloaded("provider said 429")], ANSWER) as it:
        events = await it.ask()
        again = await it.ask("again")
        assert_paired(it.llm.requests[1])
    error = events[-1]["error"]
    assert (error["code"], error["message"], error["retriable"]) == ("OVERLOADED", "provider said 429", True)
    assert again[-1]["type"] == "run.complete"


async def test_a_stream_without_a_finish_was_cut(house: Open) -> None:
    async with house(content("Hel")) as it:
        events = await it.ask()
    assert events[-1]["error"]["code"] == "PROVIDER_UNAVAILABLE"


@pytest.mark.parametrize(
    ("turn", "until"),
    [
        ([*content("Hel"), 3600.0], "content.delta"),
        ([*reasoning("hm"), 3600.0], "reasoning.delta"),
        ([*call("look", '{"at":1}'), 3600.0], "tool.args"),
        (call("slow", '{"at":1}') + finish("tool_calls"), "tool.output"),
    ],
)
async def test_a_cancel_at_any_moment_ends_everything_and_the_chat_goes_on(house: Open, turn: Any, until: str) -> None:
    async with house(turn, ANSWER) as it:
        events: list[Event] = []
        run_id = ""
        async with it.client.ask("hello", agent_key="react") as deltas:
            async for delta in deltas:
                events.append(as_json(delta))
                if events[-1]["type"] == "run.start":
                    it.chat_id, run_id = events[-1]["chatId"], events[-1]["runId"]
                if events[-1]["type"] == until:
                    async with within(0.5):
                        await it.client.cancel(run_id)
        assert events[-1]["type"] == "run.cancel"
        assert (it.llm.open, it.tools.open) == (0, 0)
        assert [text for text, _ in results(events)] == ['{"ok":false,"error":"cancelled"}'] * ("tool" in until)
        assert (await it.ask("again"))[-1]["type"] == "run.complete"
        assert_paired(it.llm.requests[-1])
        assert (await it.client.cancel(run_id)).state == "cancelled"


async def test_after_step_lets_the_tools_of_the_turn_finish(house: Open) -> None:
    async with house(call("look") + finish("tool_calls"), ANSWER) as it:
        it.tools.delay_s = 0.2
        events: list[Event] = []
        async with it.client.ask("hello", agent_key="react") as deltas:
            async for delta in deltas:
                events.append(as_json(delta))
                if events[-1]["type"] == "tool.output":
                    await it.client.cancel(events[2]["runId"], mode="after_step")
        assert len(it.llm.requests) == 1
    assert results(events) == [("seen {}", True)]
    assert events[-1]["type"] == "run.cancel"


async def test_a_caller_that_leaves_does_not_end_the_run_unless_it_said_so(house: Open) -> None:
    async with house([*content("Hel"), 0.3, *ANSWER], [*content("Hel"), 3600.0]) as it:
        run_id = ""
        for on_disconnect, ended in (("continue", "run.complete"), ("cancel", "run.cancel")):
            async with it.client.ask("hello", agent_key="oneshot", on_disconnect=on_disconnect) as deltas:
                async for delta in deltas:
                    if delta.WhichOneof("payload") == "run_start":
                        run_id = delta.run_start.run_id
                    if delta.WhichOneof("payload") == "content_delta":
                        break
            async with it.client.attach(run_id) as deltas:
                seen = [as_json(delta) async for delta in deltas]
            assert seen[-1]["type"] == ended
            assert it.llm.open == 0


async def test_attaching_to_an_ended_run_folds_to_what_was_streamed(house: Open) -> None:
    async with house(reasoning("a", "b") + call("look", '{"x":1}') + finish("tool_calls"), ANSWER) as it:
        events = await it.ask()
        run_id = it.run_ids[0]
        for last_seq in range(len(events)):
            async with it.client.attach(run_id, last_seq) as deltas:
                rest = [as_json(delta) async for delta in deltas]
            assert fold(events[:last_seq] + rest) == fold(events)
            assert all(event["seq"] > last_seq for event in rest)
        with pytest.raises(OutOfRange):
            async with it.client.attach(run_id, len(events) + 1) as deltas:
                await anext(deltas)


async def test_the_same_request_again_is_attached_to_the_first_run(house: Open) -> None:
    async with house([*content("Hel"), 0.2, *ANSWER]) as it:
        chat_id = "5f0c0000-0000-4000-8000-000000000001"
        asked = [it.ask(chat_id=chat_id, request_id="r1", agent="oneshot") for _ in range(3)]
        first, second, third = await asyncio.gather(*asked)
        assert len(it.llm.requests) == 1
        assert fold(first) == fold(second) == fold(third)
        async with it.client.ask("other", agent_key="oneshot", chat_id=chat_id, request_id="r1") as deltas:
            later = [as_json(delta) async for delta in deltas]
        assert fold(later) == fold(first)


async def test_the_same_request_again_is_attached_to_its_run_while_another_one_keeps_the_chat_busy(house: Open) -> None:
    """Found by seed 3918 of trials/simulation: what had begun and ended was told CHAT_BUSY."""
    async with house(ANSWER, [*content("Hel"), 3600.0]) as it:
        chat_id = "5f0c0000-0000-4000-8000-000000000001"
        first = await it.ask(chat_id=chat_id, request_id="r1", agent="oneshot", when_busy="reject")
        async with it.client.ask("another", agent_key="oneshot", chat_id=chat_id) as deltas:
            async for delta in deltas:
                if delta.WhichOneof("payload") == "content_delta":
                    break
            repeated: dict[str, Any] = {"agent_key": "oneshot", "chat_id": chat_id, "request_id": "r1"}
            async with it.client.ask("again", when_busy="reject", **repeated) as told:
                assert fold([as_json(delta) async for delta in told]) == fold(first)
            with pytest.raises(ChatBusy):
                await it.ask(chat_id=chat_id, request_id="r2", agent="oneshot", when_busy="reject")


async def test_a_busy_chat_rejects_enqueues_or_interrupts(house: Open) -> None:
    async with house([*content("Hel"), 3600.0], ANSWER) as it:
        chat_id = "5f0c0000-0000-4000-8000-000000000002"
        async with it.client.ask("one", agent_key="oneshot", chat_id=chat_id) as deltas:
            async for delta in deltas:
                if delta.WhichOneof("payload") == "content_delta":
                    break
            with pytest.raises(ChatBusy) as caught:
                await it.ask("two", agent="oneshot", chat_id=chat_id, when_busy="reject")
            assert caught.value.metadata["runId"]
            waiting = asyncio.create_task(it.ask("two", agent="oneshot", chat_id=chat_id))
            await asyncio.sleep(0.1)
            assert not waiting.done()
            third = await it.ask("three", agent="oneshot", chat_id=chat_id, when_busy="interrupt")
            assert as_json([delta async for delta in deltas][-1])["type"] == "run.cancel"
            assert third[-1]["type"] == "run.complete"
            assert (await waiting)[-1]["type"] == "run.cancel"


async def test_more_than_eight_waiting_queries_are_refused(house: Open) -> None:
    async with house([*content("Hel"), 3600.0]) as it:
        chat_id = "5f0c0000-0000-4000-8000-000000000003"
        tasks = [asyncio.create_task(it.ask(agent="oneshot", chat_id=chat_id)) for _ in range(9)]
        request = memory_pb2.ListUnfinishedRunsRequest()
        async with asyncio.timeout(100):
            while len((await it.memory.ListUnfinishedRuns(request, None)).runs) < len(tasks):
                await asyncio.sleep(0.02)
        with pytest.raises(QueueFull):
            await it.ask(agent="oneshot", chat_id=chat_id)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def test_a_chat_keeps_its_last_agent(house: Open) -> None:
    async with house(ANSWER) as it:
        await it.ask(agent="oneshot")
        async with it.client.ask("again", chat_id=it.chat_id) as deltas:
            events = [as_json(delta) async for delta in deltas]
    assert next(event for event in events if event["type"] == "run.start")["agentKey"] == "oneshot"


async def test_bad_queries_are_refused_before_anything_happens(house: Open) -> None:
    async with house(ANSWER) as it:
        with pytest.raises(NotFound, match="known keys: oneshot, react"):
            await it.ask(agent="nobody")
        with pytest.raises(InvalidRequest, match="chatId: must be a UUID"):
            await it.ask(chat_id="../../x")
        with pytest.raises(InvalidRequest, match="message: is required"):
            await it.ask("")
        assert it.llm.requests == []
        assert list((await it.client.chats()).chats) == []


async def test_a_changed_agent_file_holds_for_the_next_run(house: Open) -> None:
    async with house(ANSWER) as it:
        source = (it.agents / "oneshot.json").read_text()
        changed = source.replace('"plain": {}', '"description": "new", "plain": {"systemPrompt": "Rhyme."}')
        (it.agents / "oneshot.json").write_text(changed)
        async with asyncio.timeout(100):
            while not await it.client.agents("new"):
                await asyncio.sleep(0.05)
        await it.ask(agent="oneshot")
    assert it.llm.requests[0].messages[0].content[0].text == "Rhyme."


async def test_the_same_request_again_is_attached_to_its_run_when_its_agent_is_gone(house: Open) -> None:
    async with house(ANSWER) as it:
        first = await it.ask(request_id="r1", agent="oneshot")
        (it.agents / "oneshot.json").unlink()
        while "oneshot" in [agent.key for agent in await it.client.agents()]:
            await asyncio.sleep(0.02)
        async with it.client.ask("hello", agent_key="oneshot", chat_id=it.chat_id, request_id="r1") as deltas:
            assert fold([as_json(delta) async for delta in deltas]) == fold(first)
        with pytest.raises(NotFound, match="oneshot"):
            await it.ask(request_id="r2", agent="oneshot")
