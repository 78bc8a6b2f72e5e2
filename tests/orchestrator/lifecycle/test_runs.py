"""Runs end to end through the orchestrator's RPCs, with a scripted model and tools, and readers that stop reading."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from headrace.errors import ChatBusy, InvalidRequest, NotFound, OutOfRange, Overloaded, ProviderUnavailable
from headrace.streams import reading
from headrace.v1 import agent_pb2, agent_pb2_grpc, llm_pb2, memory_pb2
from services.orchestrator.run.events.feed import QUEUE_MAX
from services.runtime.rpc.channels import open_channel
from tests.support.orchestrator import (
    ONESHOT,
    Serve,
    Suite,
    answer,
    as_json,
    ask,
    assert_paired,
    cancels,
    list_notices,
    read,
    results,
    types,
)
from tests.support.orchestrator.events import ask_for, ask_until
from tests.support.orchestrator.own_agents import wait_for_owner
from tests.support.orchestrator.steps import ANSWER, call, call_tool, content, finish, reasoning
from tests.support.orchestrator.suite import write_agent
from tests.support.order import Event, fold, texts
from tests.support.timing import within
from tests.support.waiting import until, wait_until


async def test_deltas_are_forwarded_one_by_one_and_unchanged(serve: Serve) -> None:
    odd = ["\n\n", " ", "ha", "lf", "é", "\u2028", "</think>"]
    async with serve(reasoning("hm", "\n") + content(*odd) + finish()) as suite:
        events = await suite.ask(agent="oneshot")
    assert texts(events, "content") == odd
    assert texts(events, "reasoning") == ["hm", "\n"]
    assert events[-1]["finishReason"] == "stop"
    assert events[-1]["usage"] == {"inputTokens": 10, "outputTokens": 5, "modelCalls": 1, "toolCalls": 0}


async def test_react_calls_a_tool_and_answers_from_its_result(serve: Serve) -> None:
    async with serve(reasoning("hm") + call("look", '{"at":1}') + finish("tool_calls"), ANSWER) as suite:
        events = await suite.ask()
        assert [request.arguments for request in suite.tools.requests] == ['{"at":1}']
        second = suite.llm.requests[1]
    assert results(events) == [('seen {"at":1}', True)]
    assert events[-1]["type"] == "run.complete"
    assert_paired(second)
    assert second.messages[-1].content[0].text == 'seen {"at":1}'
    assert second.messages[-2].reasoning_content == "hm"


async def test_each_turns_request_extends_the_previous_one(serve: Serve) -> None:
    turn = reasoning("hm") + call("look") + finish("tool_calls")
    async with serve(turn, reasoning("x") + call("look", '{"b":2}') + finish("tool_calls"), ANSWER) as suite:
        await suite.ask()
        first, second, third = (request.messages for request in suite.llm.requests)
    assert list(second)[: len(first)] == list(first)
    assert list(third)[: len(second)] == list(second)


async def test_only_the_first_of_several_calls_runs_and_every_call_is_answered(serve: Serve) -> None:
    calls = call("look", '{"n":1}', call_id="a") + call("look", '{"n":2}', index=1, call_id="b")
    async with serve(calls + finish("tool_calls"), ANSWER) as suite:
        events = await suite.ask()
        assert len(suite.tools.requests) == 1
        assert suite.llm.requests[0].parallel_tool_calls is False
        assert_paired(suite.llm.requests[1])
    results_by_text = dict(results(events))
    assert results_by_text.pop('seen {"n":1}') is True
    assert [('"executed":false' in text, ok) for text, ok in results_by_text.items()] == [(True, False)]


async def test_parallel_calls_run_together(serve: Serve) -> None:
    calls = call("look", '{"n":1}', call_id="a") + call("look", '{"n":2}', index=1, call_id="b")
    parallel = {"systemPrompt": "", "parallelToolCalls": True}
    async with serve(calls + finish("tool_calls"), ANSWER, react=parallel) as suite:
        suite.tools.delay_s = 0.2
        events = await suite.ask()
        assert_paired(suite.llm.requests[1])
    kinds = types(events)
    assert kinds.index("tool.result") > len(kinds) - 1 - kinds[::-1].index("tool.output")
    assert sorted(text for text, _ in results(events)) == ['seen {"n":1}', 'seen {"n":2}']


async def test_ids_that_a_provider_repeats_are_made_unique(serve: Serve) -> None:
    turn = call_tool("look", '{"n":1}')
    async with serve(turn, call_tool("look", '{"n":2}'), ANSWER) as suite:
        events = await suite.ask()
        assert_paired(suite.llm.requests[2])
    ids = [event["toolId"] for event in events if event["type"] == "tool.start"]
    assert ids[0] == "call_1"
    assert len(set(ids)) == 2


async def test_a_third_identical_call_gets_a_warning_and_a_fourth_ends_the_loop(serve: Serve) -> None:
    repeated_call = call_tool("look")
    async with serve(repeated_call, repeated_call, repeated_call, repeated_call, ANSWER) as suite:
        events = await suite.ask()
        assert len(suite.tools.requests) == 3
    result_texts = [text for text, _ in results(events)]
    assert ["warning" in text for text in result_texts] == [False, False, True, False]
    assert '"executed":false' in result_texts[3]
    assert events[-1]["finishReason"] == "stuck"


async def test_calls_beyond_the_budget_get_a_result_and_the_model_must_answer(serve: Serve) -> None:
    async with serve(call_tool("look"), ANSWER, budget={"maxToolCalls": 0}) as suite:
        events = await suite.ask()
        await suite.ask("and now?")
        assert_paired(suite.llm.requests[-1])
        assert suite.tools.requests == []
    assert '"executed":false' in results(events)[0][0]
    assert (events[-1]["finishReason"], events[-1]["usage"]["toolCalls"]) == ("budget", 0)


async def test_a_missing_required_call_is_requested_twice_more(serve: Serve) -> None:
    async with serve(ANSWER, toolPolicy="REQUIRE") as suite:
        events = await suite.ask()
        assert [request.tool_choice for request in suite.llm.requests] == ["required"] * 3
    assert events[-1]["error"]["code"] == "TOOL_REQUIRED"


@pytest.mark.parametrize("agent", ["react", "oneshot"])
async def test_a_model_without_an_answer_is_an_error(serve: Serve, agent: str) -> None:
    async with serve(reasoning("hm") + finish()) as suite:
        events = await suite.ask(agent=agent)
    assert events[-1]["error"]["code"] == "NO_ANSWER"


async def test_arguments_cut_at_the_limit_are_never_executed(serve: Serve) -> None:
    async with serve(call("look", '{"at": "Pa') + finish("length"), ANSWER) as suite:
        events = await suite.ask()
        assert suite.tools.requests == []
        assert suite.llm.requests[1].messages[-2].tool_calls[0].arguments == "{}"
    assert "cut at the token limit" in results(events)[0][0]
    assert events[-1]["type"] == "run.complete"


async def test_a_call_cut_before_its_arguments_is_not_executed_without_them(serve: Serve) -> None:
    bare: list[Any] = [llm_pb2.LlmDelta(tool_call=llm_pb2.ToolCallDelta(index=0, id="call_1", name="look"))]
    async with serve(bare + finish("length"), bare + finish("tool_calls"), ANSWER) as suite:
        events = await suite.ask()
        assert len(suite.tools.requests) == 1
    assert ["cut at the token limit" in text for text, _ in results(events)] == [True, False]


async def test_an_unknown_finish_reason_is_passed_on_unchanged(serve: Serve) -> None:
    async with serve(content("four") + finish("ran_dry")) as suite:
        events = await suite.ask()
    assert events[-1]["finishReason"] == "ran_dry"


async def test_an_empty_turn_is_followed_by_another_one(serve: Serve) -> None:
    async with serve(reasoning("hm") + finish(), ANSWER) as suite:
        events = await suite.ask()
    assert (events[-1]["finishReason"], events[-1]["usage"]["modelCalls"]) == ("stop", 2)


async def test_a_tool_that_ends_without_a_result_has_failed(serve: Serve) -> None:
    async with serve(call_tool("look"), ANSWER) as suite:
        suite.tools.outcome = False
        events = await suite.ask()
    [(text, ok)] = results(events)
    assert "without a result" in text
    assert not ok


async def test_a_call_of_an_unknown_tool_gets_a_result_naming_the_tools(serve: Serve) -> None:
    async with serve(call_tool("rm_rf"), ANSWER) as suite:
        events = await suite.ask()
        assert suite.tools.requests == []
    assert "look, slow" in results(events)[0][0]


async def test_a_failure_of_the_tools_service_is_a_result_for_the_model(serve: Serve) -> None:
    async with serve(call_tool("look"), ANSWER) as suite:
        suite.tools.error = ProviderUnavailable("not today")
        events = await suite.ask()
    assert results(events) == [('{"ok":false,"error":"PROVIDER_UNAVAILABLE","message":"not today"}', False)]
    assert events[-1]["type"] == "run.complete"


async def test_an_agents_missing_tool_is_reported_and_the_run_continues(serve: Serve) -> None:
    async with serve(ANSWER, toolConfig={"backends": ["look", "gone"]}) as suite:
        events = await suite.ask()
    [(code, message)] = list_notices(events)
    assert (code, "'gone'" in message) == ("TOOL_UNAVAILABLE", True)
    assert events[-1]["type"] == "run.complete"


@pytest.mark.parametrize("before", [[], content("Hel"), call("look", '{"at"')])
async def test_an_error_of_the_model_ends_the_run_and_the_next_query_succeeds(serve: Serve, before: Any) -> None:
    async with serve([*before, Overloaded("provider said 429")], ANSWER) as suite:
        events = await suite.ask()
        again = await suite.ask("again")
        assert_paired(suite.llm.requests[1])
    error = events[-1]["error"]
    assert (error["code"], error["message"], error["retriable"]) == ("OVERLOADED", "provider said 429", True)
    assert again[-1]["type"] == "run.complete"


async def test_a_model_stream_without_finish_is_an_error(serve: Serve) -> None:
    async with serve(content("Hel")) as suite:
        events = await suite.ask()
    assert events[-1]["error"]["code"] == "PROVIDER_UNAVAILABLE"


@pytest.mark.parametrize(
    ("turn", "moment"),
    [
        ([*content("Hel"), 3600.0], "content.delta"),
        ([*reasoning("hm"), 3600.0], "reasoning.delta"),
        ([*call("look", '{"at":1}'), 3600.0], "tool.args"),
        (call_tool("slow", '{"at":1}'), "tool.output"),
    ],
)
async def test_a_cancel_at_any_moment_ends_model_and_tools_and_the_chat_stays_usable(
    serve: Serve, turn: Any, moment: str
) -> None:
    async with serve(turn, ANSWER) as suite:

        async def cancel(event: Event) -> None:
            async with within(0.5):
                await suite.client.cancel(event["runId"])

        events = await ask(suite, (moment, cancel))
        assert events[-1]["type"] == "run.cancel"
        assert (suite.llm.open, suite.tools.open) == (0, 0)
        assert [text for text, _ in results(events)] == ['{"ok":false,"error":"cancelled"}'] * ("tool" in moment)
        assert (await suite.ask("again"))[-1]["type"] == "run.complete"
        assert_paired(suite.llm.requests[-1])
        assert (await suite.client.cancel(events[-1]["runId"])).state == "cancelled"


async def test_a_cancel_after_step_lets_the_tools_of_the_turn_finish(serve: Serve) -> None:
    async with serve(call_tool("look"), ANSWER) as suite:
        suite.tools.delay_s = 0.2
        events = await ask(suite, ("tool.output", cancels(suite, mode="after_step")))
        assert len(suite.llm.requests) == 1
    assert results(events) == [("seen {}", True)]
    assert events[-1]["type"] == "run.cancel"


async def test_attaching_to_an_ended_run_folds_to_what_was_streamed(serve: Serve) -> None:
    async with serve(reasoning("a", "b") + call("look", '{"x":1}') + finish("tool_calls"), ANSWER) as suite:
        events = await suite.ask()
        run_id = suite.run_ids[0]
        for last_seq in range(len(events)):
            later_events = await read(suite.client, run_id, last_seq)
            assert fold(events[:last_seq] + later_events) == fold(events)
            assert all(event["seq"] > last_seq for event in later_events)
        with pytest.raises(OutOfRange):
            async with suite.client.attach(run_id, len(events) + 1) as deltas:
                await anext(deltas)


async def test_a_repeated_request_attaches_to_its_run_while_the_chat_is_busy(
    serve: Serve,
) -> None:
    """Found by seed 3918 of trials/simulation: the repetition of an ended query got CHAT_BUSY."""
    async with serve(ANSWER, [*content("Hel"), 3600.0]) as suite:
        chat_id = "5f0c0000-0000-4000-8000-000000000001"
        first = await suite.ask(chat_id=chat_id, request_id="r1", agent="oneshot", when_busy="reject")
        await ask_until(suite.client, "content.delta", "another", agent_key="oneshot", chat_id=chat_id)
        repeated: dict[str, Any] = {"agent_key": "oneshot", "chat_id": chat_id, "request_id": "r1"}
        assert fold(await ask_for(suite.client, "again", when_busy="reject", **repeated)) == fold(first)
        with pytest.raises(ChatBusy):
            await suite.ask(chat_id=chat_id, request_id="r2", agent="oneshot", when_busy="reject")


async def test_a_chat_keeps_its_last_agent(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        await suite.ask(agent="oneshot")
        events = await ask_for(suite.client, "again", chat_id=suite.chat_id)
    assert next(event for event in events if event["type"] == "run.start")["agentKey"] == "oneshot"


async def test_bad_queries_are_refused_before_anything_happens(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        with pytest.raises(NotFound, match="known keys: oneshot, react"):
            await suite.ask(agent="nobody")
        with pytest.raises(InvalidRequest, match="chatId: must be a UUID"):
            await suite.ask(chat_id="../../x")
        with pytest.raises(InvalidRequest, match="message: is required"):
            await suite.ask("")
        assert suite.llm.requests == []
        assert list((await suite.client.chats()).chats) == []


async def test_a_changed_agent_file_applies_to_the_next_run(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        changed = ONESHOT | {"description": "new", "plain": {"systemPrompt": "Rhyme."}}
        write_agent(suite.config.config_dir, "oneshot", changed)
        await until(lambda: suite.client.agents("new"))
        await suite.ask(agent="oneshot")
    assert suite.llm.requests[0].messages[0].content[0].text == "Rhyme."


@pytest.mark.parametrize(("tag", "keys"), [("travel", ["oneshot"]), ("TRAV", ["oneshot"]), ("nothing", [])])
async def test_agents_are_found_by_their_tags_and_listed_with_them(serve: Serve, tag: str, keys: list[str]) -> None:
    async with serve(ANSWER, beside={"oneshot": ONESHOT | {"tags": ["Travel", "maps"]}}) as suite:
        assert [agent.key for agent in await suite.client.agents(tag)] == keys
        assert {agent.key: [*agent.tags] for agent in await suite.client.agents()} == {
            "oneshot": ["Travel", "maps"],
            "react": [],
        }


async def test_a_repeated_request_attaches_to_its_run_when_its_agent_is_gone(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        first = await suite.ask(request_id="r1", agent="oneshot")
        (suite.agents / "oneshot.json").unlink()
        await wait_for_owner(suite.client, "oneshot", "")
        again = await ask_for(suite.client, agent_key="oneshot", chat_id=suite.chat_id, request_id="r1")
        assert fold(again) == fold(first)
        with pytest.raises(NotFound, match="oneshot"):
            await suite.ask(request_id="r2", agent="oneshot")


TRIES = 20
"""Lists of tools and models are cached for two seconds, and a run may take longer on a slow machine."""


def list_memory_calls(lines: list[structlog.typing.EventDict]) -> list[str]:
    methods = [line["method"] for line in lines if line["event"] == "rpc done"]
    return [method.rpartition("/")[2] for method in methods if method.startswith("/headrace.v1.MemoryService/")]


async def ask_until_called(suite: Suite, agent: str, expected: list[str]) -> None:
    """Ask until a query makes exactly these calls of memory."""
    calls: list[str] = []
    for _ in range(TRIES):
        with capture_logs() as lines:
            events = await suite.ask("two", agent)
        assert events[-1]["type"] == "run.complete"
        if sorted(calls := list_memory_calls(lines)) == sorted(expected):
            return
    raise AssertionError(calls)


@pytest.mark.parametrize("agent", ["oneshot", "react"])
async def test_a_plain_run_makes_two_calls_to_memory(serve: Serve, agent: str) -> None:
    async with serve(answer("Hel", "lo")) as suite:
        await suite.ask("one", agent)
        await ask_until_called(suite, agent, ["BeginRun", "Append"])
        messages = [message for message in suite.llm.requests[-1].messages if message.role != "system"]
        texts = ["".join(part.text for part in message.content).split("\n")[0] for message in messages]
        assert texts[:3] == ["one", "Hello", "two"]
        assert texts[-1] == "two"


async def test_a_changed_chat_state_reaches_the_models_request(serve: Serve) -> None:
    todos = '{"todos":[{"id":"1","content":"write the paper","status":"pending"}]}'
    async with serve(answer("ok")) as suite:
        await suite.ask("one")
        await suite.memory.UpdateState(memory_pb2.UpdateStateRequest(chat_id=suite.chat_id, state=todos), None)
        with capture_logs() as lines:
            await suite.ask("two")
        assert {*list_memory_calls(lines)} == {"Append", "BeginRun", "LoadContext"}
        assert "write the paper" in str(suite.llm.requests[-1])
        await ask_until_called(suite, "react", ["Append", "GetState", "LoadContext", "Append"])
        assert "write the paper" in str(suite.llm.requests[-1])


async def test_the_last_answer_and_the_runs_end_are_one_append(serve: Serve) -> None:
    appended: list[list[str | None]] = []

    async def note(request: memory_pb2.AppendRequest) -> None:
        appended.append([line.WhichOneof("line") for line in request.lines])

    turns = [call_tool("look"), answer("done")]
    async with serve(*turns, before_append=note) as suite:
        assert (await suite.ask("go"))[-1]["type"] == "run.complete"
    assert (appended[0], appended[-1]) == (["query"], ["step", "run"])
    assert ["step"] in appended[1:-1], "an answer with calls is stored before they run"


CHUNKS = [f"{number:0300}" for number in range(QUEUE_MAX * 3 // 2)]
"""More deltas than fit into the queue and the connection to a reader."""


@asynccontextmanager
async def query_over_channel(
    suite: Suite, on_disconnect: str = "continue"
) -> AsyncGenerator[AsyncIterator[agent_pb2.AgentDelta]]:
    """Yield a query's events over a channel between services; a client's channel buffers megabytes ahead."""
    request = agent_pb2.QueryRequest(message="hi", agent_key="oneshot", on_disconnect=on_disconnect)
    async with (
        open_channel(suite.address) as channel,
        reading(agent_pb2_grpc.AgentServiceStub(channel).Query(request)) as events,
    ):
        yield events


async def read_start(events: AsyncIterator[agent_pb2.AgentDelta]) -> list[agent_pb2.AgentDelta]:
    first_events = [await anext(events) for _ in range(3)]
    assert first_events[-1].HasField("run_start")
    return first_events


async def test_a_paused_reader_blocks_nobody_and_gets_every_event(serve: Serve) -> None:
    async with serve(answer(*CHUNKS)) as suite, query_over_channel(suite) as events:
        first_events = await read_start(events)
        events_of_quick_reader = await read(suite.client, first_events[-1].run_start.run_id)
        assert events_of_quick_reader[-1]["type"] == "run.complete"
        events_of_paused_reader = [as_json(event) for event in first_events] + [
            as_json(event) async for event in events
        ]
    assert fold(events_of_paused_reader) == fold(events_of_quick_reader)
    assert 10 < len(events_of_paused_reader) < len(CHUNKS)


async def test_a_paused_caller_that_leaves_cancels_its_run(serve: Serve) -> None:
    async with serve([*content(*CHUNKS), 3600.0]) as suite:
        async with query_over_channel(suite, on_disconnect="cancel") as events:
            run_id = (await read_start(events))[-1].run_start.run_id
            async with suite.client.attach(run_id) as others:
                async for event in others:
                    if CHUNKS[-1] in event.content_delta.delta:
                        break
            assert suite.llm.open == 1
        async with suite.client.attach(run_id) as others:
            assert as_json([event async for event in others][-1])["type"] == "run.cancel"
        async with within(2):
            await wait_until(lambda: not suite.llm.open)
