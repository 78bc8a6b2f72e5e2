"""Compaction of runs, with the real memory, a model with a small window, and a scripted summariser."""

import asyncio
from typing import Any

import pytest
from prometheus_client import REGISTRY

from headrace.errors import ChatBusy, ContextLengthExceeded, NotFound, Overloaded
from headrace.v1 import agent_pb2, common_pb2, llm_pb2, memory_pb2
from tests.support.orchestrator import CHAT, MODEL, Serve, Suite, as_json, ask, ask_for, assert_paired, types
from tests.support.orchestrator.compaction import (
    ANSWER,
    DONE,
    LARGE,
    SMALL,
    WORDS,
    ask_until_compacted,
    fill,
    of_compaction,
    read_request_text,
)
from tests.support.orchestrator.steps import BREAK, Step, answer, call, content, finish, summary
from tests.support.orchestrator.watched_memory import Refusal
from tests.support.order import Event, check_order, fold, texts
from tests.support.timing import within
from tests.support.waiting import wait_until


def list_first_words(request: llm_pb2.ChatRequest) -> list[str]:
    """Return the first word of each user message."""
    return [message.content[0].text.split()[0] for message in request.messages if message.role == "user"]


async def read_event_types(suite: Suite) -> list[str]:
    """Return the types of all events of the chat."""
    return [as_json(event)["type"] for event in (await suite.client.chat(suite.chat_id)).events]


async def test_a_context_larger_than_the_window_is_compacted_when_the_run_starts(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        suite.llm.models = [SMALL]
        events = await ask_until_compacted(suite)
        start, complete = of_compaction(events)
        assert types(events)[:3] == ["request.query", "run.start", "compaction.start"]
        assert (start["trigger"], "turn" in start) == ("auto", False)
        assert complete["type"] == "compaction.complete"
        assert start["preTokens"] == complete["preTokens"] > complete["postTokens"] > 0
        assert events[-1]["usage"] | {"modelCalls": 2, "inputTokens": 10} == events[-1]["usage"]
        assert "They spoke of the weather." in read_request_text(suite.llm.requests[-1])
        assert "0:" not in list_first_words(suite.llm.requests[-1])
        assert [event for event in await read_event_types(suite) if event.startswith("compaction")] == types(
            [start, complete]
        )
        assert not of_compaction(await suite.ask("short"))


@pytest.mark.parametrize(("limit_usd", "is_compacted"), [(0.01, False), (1.0, True)])
async def test_a_summary_stays_within_the_runs_budget(serve: Serve, limit_usd: float, is_compacted: bool) -> None:
    async with serve(ANSWER, budget={"maxCostUsd": limit_usd}) as suite:
        priced = {"input_usd_per_mtok_max": 1.0, "output_usd_per_mtok_max": 10.0}
        suite.llm.models = [llm_pb2.ModelInfo(model="m", context_window_tokens=2200, output_tokens_max=900, **priced)]  # pyright: ignore[reportArgumentType] - all are numbers
        for number in range(8):
            await suite.ask(f"{number}: {WORDS}")
        if not is_compacted:
            assert not suite.memory.compact_requests
            return
        request = suite.memory.compact_requests[0]
        assert suite.llm.aside_requests[0].max_tokens <= request.summary_tokens_max == 900
        assert 0 < request.summary_request_tokens_max < 10_000


async def test_a_later_turn_is_compacted_before_its_model_call(serve: Serve) -> None:
    turns = [call("look", f'{{"n":{number}}}', call_id=f"c{number}") + DONE for number in range(5)]
    async with serve(*turns, ANSWER) as suite:
        suite.llm.models = [SMALL]
        suite.tools.result_chars = 1500
        events = await suite.ask("Look around.")
        start, end = of_compaction(events)[:2]
        assert start["turn"] == end["turn"] > 1
        assert events[-1]["type"] == "run.complete"
        for request in suite.llm.requests:
            assert_paired(request)
        assert "Look around." in read_request_text(suite.llm.requests[-1]), "the message being answered stays"


TOO_LONG: list[Step] = [ContextLengthExceeded("too long")]
ROOMY = llm_pb2.ModelInfo(provider_key="scripted", model="m", context_window_tokens=100_000)


@pytest.mark.parametrize("before", [0, 3])
async def test_a_turn_the_provider_refuses_as_too_long_is_compacted_and_retried_once(serve: Serve, before: int) -> None:
    async with serve(*[ANSWER] * before, TOO_LONG, ANSWER) as suite:
        suite.llm.models = [ROOMY]
        await fill(suite, before)
        events = await suite.ask(WORDS)
    kinds = types(of_compaction(events))
    if before:
        assert kinds == ["compaction.start", "compaction.complete"]
        assert texts(events, "content") == ["All ", "good."]
        assert events[-1]["usage"]["modelCalls"] == 2
        assert "0:" not in list_first_words(suite.llm.requests[-1])
    else:
        assert kinds == ["compaction.start", "compaction.fail"]
        assert of_compaction(events)[1]["reason"] == "NOTHING_TO_COMPACT"
        assert events[-1]["error"]["code"] == "CONTEXT_LENGTH_EXCEEDED"
        assert len(suite.llm.aside_requests) == 0


async def test_a_compacted_turn_whose_gateway_goes_away_is_retried_compacted(serve: Serve) -> None:
    async with serve(ANSWER, ANSWER, ANSWER, TOO_LONG, [*content("Hel"), BREAK], ANSWER) as suite:
        suite.llm.models = [ROOMY]
        await fill(suite, 3)
        events = await suite.ask(WORDS)
        assert suite.llm.requests[-1] == suite.llm.requests[-2] != suite.llm.requests[-3]
    assert types(of_compaction(events)) == ["compaction.start", "compaction.complete"]
    assert [block["text"] for block in fold(events)["blocks"].values()] == ["All good."]
    assert events[-1]["type"] == "run.complete"


async def test_a_turn_still_too_long_after_compaction_fails_the_run(serve: Serve) -> None:
    async with serve(ANSWER, ANSWER, ANSWER, TOO_LONG, TOO_LONG, ANSWER) as suite:
        await fill(suite, 3)
        events = await suite.ask(WORDS)
        assert len(suite.llm.requests) == 5
        assert len(of_compaction(events)) == 2
        assert events[-1]["error"]["code"] == "CONTEXT_LENGTH_EXCEEDED"
        assert (await suite.ask("again"))[-1]["type"] == "run.complete"


async def test_a_turn_too_long_after_its_first_delta_is_not_retried(serve: Serve) -> None:
    async with serve(ANSWER, ANSWER, content("Hel") + TOO_LONG) as suite:
        await fill(suite, 2)
        events = await suite.ask(WORDS)
    assert not of_compaction(events)
    assert events[-1]["error"]["code"] == "CONTEXT_LENGTH_EXCEEDED"


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ([Overloaded("no")], "OVERLOADED"),
        ([*content("Hel"), Overloaded("no")], "OVERLOADED"),
        (finish(), "EMPTY_SUMMARY"),
        (summary(" ".join(map(str, range(2000)))), "SUMMARY_TOO_LONG"),
        ([ContextLengthExceeded("no")], "CONTEXT_LENGTH_EXCEEDED"),
    ],
)
async def test_a_summariser_that_fails_does_not_end_the_run(serve: Serve, steps: list[Step], reason: str) -> None:
    async with serve(ANSWER) as suite:
        suite.llm.models = [SMALL]
        suite.llm.aside["compact"] = steps
        events = await ask_until_compacted(suite)
        assert types(of_compaction(events)) == ["compaction.start", "compaction.fallback"]
        assert of_compaction(events)[1]["reason"] == reason
        assert events[-1]["type"] == "run.complete"
        assert WORDS in read_request_text(suite.llm.requests[-1])
        assert (await suite.ask("again"))[-1]["type"] == "run.complete"


async def test_a_cancel_during_a_compaction_leaves_the_chat_usable(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        suite.llm.models = [SMALL]
        suite.llm.aside["compact"] = [*content("<summary>Hel"), 3600.0]
        await fill(suite, 5)

        async def cancel(event: Event) -> None:
            async with within(1):
                await suite.client.cancel(event["runId"])

        events = await ask(suite, ("compaction.start", cancel), message=LARGE)
        assert types(events)[-2:] == ["compaction.start", "run.cancel"]
        async with within(1):
            await wait_until(lambda: not suite.llm.open)
        suite.llm.aside["compact"] = summary()
        next_events = await suite.ask("again")
        assert types(of_compaction(next_events)) == ["compaction.start", "compaction.complete"]
        assert next_events[-1]["type"] == "run.complete"
        assert_paired(suite.llm.requests[-1])


async def test_without_a_spare_model_call_nothing_is_compacted(serve: Serve) -> None:
    async with serve(ANSWER, budget={"maxModelCalls": 1}) as suite:
        suite.llm.models = [SMALL]
        for number in range(12):
            events = await suite.ask(f"{number}: {WORDS}")
            assert not of_compaction(events)
            assert events[-1]["type"] == "run.complete"
    assert suite.llm.aside_requests == []


START = memory_pb2.CompactDelta(start=agent_pb2.CompactionStart(trigger="auto", pre_tokens=1700))
COST = memory_pb2.CompactDelta(usage=common_pb2.Usage(input_tokens=7, output_tokens=1))
FAIL = memory_pb2.CompactDelta(fail=agent_pb2.CompactionFail(reason="NOTHING_TO_COMPACT"))


async def fill_nearly(suite: Suite, times: int = 10) -> None:
    """Ask until a compaction is due at one of the next turns."""
    suite.llm.models = []
    await fill(suite, times)
    suite.llm.models = [SMALL]


@pytest.mark.parametrize(("grows_by", "most"), [(1, 1), (150, 3)])
async def test_a_failed_compaction_is_retried_only_when_the_context_has_grown(
    serve: Serve, grows_by: int, most: int
) -> None:
    looking = [call("look", f'{{"n":{n}}}', call_id=f"c{n}") + DONE for n in range(5)]
    async with serve(*[ANSWER] * 8, *looking, ANSWER) as suite:
        await fill_nearly(suite, 8)
        suite.memory.compaction = [START, COST, FAIL]
        suite.tools.result_chars = grows_by
        events = await suite.ask("go")
    tries = len(of_compaction(events)) // 2
    assert types(of_compaction(events)) == ["compaction.start", "compaction.fail"] * tries
    assert min(most, 2) <= tries <= most
    assert events[-1]["type"] == "run.complete"
    assert events[-1]["usage"] | {"modelCalls": 6 + tries, "inputTokens": 7 * tries} == events[-1]["usage"]


@pytest.mark.parametrize("steps", [[START, FAIL], [START, Overloaded("no")], [START, COST, Overloaded("no")]])
async def test_a_compaction_that_breaks_off_fails_and_the_run_continues(serve: Serve, steps: Any) -> None:
    async with serve(ANSWER) as suite:
        await fill_nearly(suite)
        suite.memory.compaction = steps
        events = await suite.ask(LARGE)
    assert types(of_compaction(events)) == ["compaction.start", "compaction.fail"]
    assert events[-1]["type"] == "run.complete"
    # Where memory refused by itself, no model was asked.
    assert events[-1]["usage"]["modelCalls"] == (1 if steps == [START, FAIL] else 2)


async def test_an_error_before_the_compaction_starts_fails_the_run(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        await fill_nearly(suite)
        suite.memory.compaction = [Overloaded("no")]
        events = await suite.ask(LARGE)
        assert not of_compaction(events)
        assert events[-1]["error"]["code"] == "OVERLOADED"
        suite.memory.compaction = []
        assert (await suite.ask("again"))[-1]["type"] == "run.complete"


@pytest.mark.parametrize(("max_tokens", "output_tokens"), [(None, 200), (77, 77)])
async def test_a_compact_request_has_the_models_window_and_output_tokens(
    serve: Serve, max_tokens: int | None, output_tokens: int
) -> None:
    async with serve(ANSWER, modelConfig=MODEL | {"max_tokens": max_tokens}) as suite:
        suite.llm.models = [SMALL]
        await suite.ask("hello")
        await suite.ask("/compact")
        [request] = suite.memory.compact_requests
    assert (request.limits.context_window_tokens, request.limits.output_tokens) == (2200, output_tokens)
    assert [tool.name for tool in request.tools] == ["look", "slow"]


async def test_without_a_list_of_models_the_window_comes_from_the_built_in_table(serve: Serve) -> None:
    async with serve(ANSWER, modelConfig={"providerKey": "scripted", "model": "gpt-4o"}) as suite:
        suite.llm.models = Overloaded("no")
        assert (await suite.ask("hello"))[-1]["type"] == "run.complete"
        assert of_compaction(await suite.ask("/compact"))[-1]["reason"] == "NOTHING_TO_COMPACT"
        limits = suite.memory.compact_requests[0].limits
        assert (limits.model, limits.context_window_tokens, limits.output_tokens) == ("gpt-4o", 128_000, 16_384)


async def test_a_summary_model_with_a_small_window_summarises_in_several_calls(
    serve: Serve,
) -> None:
    small = llm_pb2.ModelInfo()
    small.CopyFrom(SMALL)
    small.summary_model = "cheap"
    async with serve(ANSWER) as suite:
        suite.llm.models = [small, llm_pb2.ModelInfo(provider_key="scripted", model="cheap", context_window_tokens=900)]
        events = await ask_until_compacted(suite)
        receipt = of_compaction(events)[1]["receipt"]
        requests = [*suite.llm.aside_requests]
    assert len(requests) > 1
    for request in requests:
        assert (request.provider_key, request.model, request.stage) == ("scripted", "cheap", "compact")
        assert len(read_request_text(request)) < len(WORDS) * 6, "cut to the summariser's window"
    assert receipt["modelCalls"] == len(requests)
    assert events[-1]["usage"]["modelCalls"] == len(requests) + 1, "the run is charged for each call"
    assert events[-1]["usage"]["inputTokens"] == 10 * len(requests)


async def test_the_summarisers_request_starts_with_the_turns_messages(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        await fill(suite, 4)
        await suite.ask("/compact")
        turn, summary_request = suite.llm.raw_requests[-1], suite.llm.aside_requests[-1]
    assert list(turn.tools) == list(summary_request.tools)
    assert summary_request.tool_choice == "none"
    # The system message says the minute.
    assert list(summary_request.messages)[1 : len(turn.messages)] == list(turn.messages)[1:]


async def test_the_compact_command_compacts_and_is_not_sent_to_a_model(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        await fill(suite, 4, "oneshot")
        events = await ask_for(suite.client, "/compact  keep the numbers ", chat_id=suite.chat_id)
        assert types(events)[:3] == ["request.query", "run.start", "compaction.start"]
        assert types(events)[3:] == ["compaction.complete", "run.complete"]
        assert events[1]["agentKey"] == "oneshot"
        assert {event["trigger"] for event in of_compaction(events)} == {"manual"}
        assert events[-1]["finishReason"] == "stop"
        assert events[-1]["usage"]["modelCalls"] == 1
        assert read_request_text(suite.llm.aside_requests[-1]).endswith("heed this:\n\nkeep the numbers")
        await suite.ask("and now?", agent="oneshot")
    request = suite.llm.requests[-1]
    assert "They spoke of the weather." in read_request_text(request)
    assert "/compact" not in read_request_text(request)
    assert len(suite.llm.requests) == 5


async def test_a_compact_command_with_nothing_to_compact_completes(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        await suite.ask("hello", agent="oneshot")
        events = await suite.ask("/compact", agent="oneshot")
    assert types(of_compaction(events)) == ["compaction.start", "compaction.fail"]
    assert of_compaction(events)[1]["reason"] == "NOTHING_TO_COMPACT"
    assert (events[-1]["finishReason"], events[-1]["usage"]["modelCalls"]) == ("stop", 0)
    assert suite.llm.aside_requests == []


async def test_mentioned_files_are_included_in_the_summary(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        suite.tools.files = {"src/a.py": b"x" + b"\n" * 1200, "a.py": b"not this", "b.bin": b"\0\1", "报告.md": b"# r"}
        await fill(suite, 4, "oneshot")
        await suite.ask("See src/a.py, b.bin and 请看报告.md。", agent="oneshot")
        events = await suite.ask("/compact", agent="oneshot")
        summary_prompt = read_request_text(suite.llm.aside_requests[-1])
    assert of_compaction(events)[1]["filesIncluded"] == ["报告.md", "src/a.py"]
    assert "[File: src/a.py]\nx\n" in summary_prompt
    assert "[200 more lines: read_file with firstLine 1001 shows them]" in summary_prompt
    assert "not this" not in summary_prompt


async def test_mentions_of_files_are_searched_in_the_whole_log(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        suite.tools.files = {"early.txt": b"the plan"}
        await suite.ask("See early.txt", agent="oneshot")
        for number in range(25):
            await suite.ask(f"{number}", agent="oneshot")
        events = await suite.ask("/compact", agent="oneshot")
    assert "The plan".lower() in read_request_text(suite.llm.aside_requests[-1])
    assert of_compaction(events)[1]["type"] == "compaction.complete"


@pytest.mark.parametrize("calls", [2, 3])  # The turn needs one of the calls.
async def test_an_invalid_summary_is_requested_once_more_while_calls_are_left(serve: Serve, calls: int) -> None:
    async with serve(ANSWER, budget={"maxModelCalls": calls}) as suite:
        suite.llm.models = [SMALL]
        suite.llm.aside["compact"] = answer("I'm sorry, I can't help with that.")
        events = await ask_until_compacted(suite)
        assert of_compaction(events)[1]["reason"] == "INCOMPLETE_SUMMARY"
        assert (len(suite.llm.aside_requests), events[-1]["usage"]["modelCalls"]) == (calls - 1, calls)
        assert "I'm sorry" not in read_request_text(suite.llm.requests[-1])


async def test_a_compaction_omits_files_if_the_workspace_cannot_be_listed(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        suite.tools.lists_files = False
        suite.tools.files = {"a.py": b"x"}
        await fill(suite, 4)
        await suite.ask("See a.py")
        events = await suite.ask("/compact")
    assert types(of_compaction(events)) == ["compaction.start", "compaction.complete"]
    assert of_compaction(events)[1]["filesIncluded"] == []


async def test_a_lost_reply_of_an_append_does_not_duplicate_a_compaction_event(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        suite.llm.models = [SMALL]
        suite.memory.after = loss = Refusal("compaction_complete", Overloaded("lost on the way"))
        events = await ask_until_compacted(suite)
        assert not loss.left
        assert events[-1]["type"] == "run.complete"
        assert (await read_event_types(suite)).count("compaction.complete") == 1
        assert (await suite.ask("again"))[-1]["type"] == "run.complete"


async def call_compact(suite: Suite, chat_id: str) -> list[Event]:
    """Call the Compact RPC and check the order of its events."""
    async with suite.client.compact(chat_id) as deltas:
        events = [as_json(delta) async for delta in deltas]
    check_order(events)
    return events


async def test_the_compact_rpc_does_the_same_as_the_command(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        await fill(suite, 4, "oneshot")
        events = await call_compact(suite, suite.chat_id)
        assert (events[0]["message"], events[1]["agentKey"]) == ("/compact", "oneshot")
        assert types(of_compaction(events)) == ["compaction.start", "compaction.complete"]
        second_events = await call_compact(suite, suite.chat_id)
        assert of_compaction(second_events)[-1]["reason"] == "NOTHING_TO_COMPACT"
        assert second_events[-1]["finishReason"] == "stop"


async def test_a_chat_that_is_busy_or_unknown_is_not_compacted(serve: Serve) -> None:
    async with serve([*content("Hel"), 3600.0]) as suite:
        with pytest.raises(NotFound):
            await call_compact(suite, "5f0c0000-0000-4000-8000-000000000009")

        async def compact_and_cancel(event: Event) -> None:
            with pytest.raises(ChatBusy) as caught:
                await call_compact(suite, CHAT)
            assert caught.value.metadata["runId"] == event["runId"]
            await suite.client.cancel(event["runId"])

        await ask(suite, ("content.delta", compact_and_cancel), agent_key="oneshot")
        assert list((await suite.client.chat(suite.chat_id)).events)[-1].HasField("run_cancel")


async def ask_until_summarised(suite: Suite) -> None:
    """Ask until a request contains the summary."""
    async with within(30):
        while "They spoke of the weather." not in read_request_text(suite.llm.requests[-1]):
            assert not of_compaction(await suite.ask("short"))


def read_spent_tokens() -> float:
    labels = {"moment": "between_runs", "kind": "input"}
    return REGISTRY.get_sample_value("headrace_compaction_tokens_total", labels) or 0.0


async def wait_for_compaction(suite: Suite) -> None:
    async with within(10):
        await wait_until(lambda: suite.llm.aside_requests)


async def test_a_nearly_full_chat_is_compacted_after_the_run(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        suite.llm.models = [SMALL]
        for number in range(9):
            assert not of_compaction(await suite.ask(f"{number}: {WORDS}")), "no run waits for it"
            if suite.llm.aside_requests:
                break
        await ask_until_summarised(suite)
        assert suite.memory.compact_requests[0].summary_only


async def test_get_context_reports_the_usage_of_a_compaction_between_runs(serve: Serve) -> None:
    before = read_spent_tokens()
    async with serve(ANSWER) as suite:
        await fill_nearly(suite, 9)
        await suite.ask("go")  # The last query: another one would end the compaction, or start its own.
        async with within(10):
            while not (context := await suite.client.context(suite.chat_id)).HasField("compaction"):
                await asyncio.sleep(0.01)
    compaction, usage = context.compaction, context.between_runs_usage
    assert (compaction.run_id, compaction.trigger, compaction.strategy) == ("", "auto", "summary")
    assert compaction.receipt.usage.input_tokens > 0
    assert (compaction.receipt.replaced_messages > 0, compaction.receipt.kept_messages > 0) == (True, True)
    assert usage.input_tokens == compaction.receipt.usage.input_tokens * usage.model_calls
    assert context.chat_usage.model_calls > usage.model_calls
    assert read_spent_tokens() - before >= usage.input_tokens, "the metrics also count attempts without a summary"


async def test_a_query_does_not_wait_for_its_chats_compaction(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        suite.llm.aside["compact"] = [3600.0]
        await fill_nearly(suite, 9)
        assert (await suite.ask("go"))[-1]["type"] == "run.complete"
        await wait_for_compaction(suite)
        events = await suite.ask("and on")
        assert types(events)[-1] == "run.complete"
        assert not of_compaction(events)
        assert len(suite.memory.compact_requests) == 1, "one at a time"


async def test_a_too_long_turn_is_retried_after_another_compaction_of_the_chat(serve: Serve) -> None:
    async with serve(*[ANSWER] * 10, TOO_LONG, ANSWER) as suite:
        suite.llm.aside["compact"] = [5.0, *summary()]
        await fill_nearly(suite, 9)
        await suite.ask("go")
        await wait_for_compaction(suite)
        suite.llm.aside["compact"] = [20.0, *summary()]
        events = await suite.ask("and on")
        assert [event.get("reason") for event in of_compaction(events)] == [None, "ALREADY_COMPACTED"]
        assert events[-1]["type"] == "run.complete"
        assert "They spoke of the weather." in read_request_text(suite.llm.requests[-1])


async def test_a_chat_over_max_runs_is_summarised_about_once_in_ten_runs(serve: Serve) -> None:
    async with serve(ANSWER, memory={"maxRuns": 10}) as suite:
        for number in range(25):
            before = len(suite.llm.aside_requests)
            assert not of_compaction(await suite.ask(f"{number}: {WORDS}"))
            if len(suite.llm.aside_requests) > before:
                async with within(10):
                    await wait_until(lambda: not suite.llm.open)
        assert 1 <= len(suite.llm.aside_requests) <= 2
        await ask_until_summarised(suite)


@pytest.mark.parametrize("failure", ["", "unavailable"])
async def test_without_a_summary_no_message_leaves_the_context(serve: Serve, failure: str) -> None:
    async with serve(ANSWER) as suite:
        suite.llm.aside["compact"] = [Overloaded("no")] if failure else DONE
        await fill_nearly(suite, 9)
        await suite.ask("go")
        await wait_for_compaction(suite)
        await suite.ask("and on")
        assert "0: one two" in read_request_text(suite.llm.requests[-1])


async def test_a_run_reports_once_that_messages_were_shortened(serve: Serve) -> None:
    turns = [call("look", f'{{"n":{number}}}', call_id=f"c{number}") + DONE for number in range(3)]
    async with serve(*turns, ANSWER) as suite:
        suite.llm.models = [SMALL]
        suite.tools.result_chars = 30_000
        events = await suite.ask("Look around.")
        notices = [event for event in events if event["type"] == "run.notice"]
        assert [notice["code"] for notice in notices] == ["CONTEXT_SHORTENED"]
        assert events[-1]["type"] == "run.complete"
        requests = [request.SerializeToString() for request in suite.llm.requests]
        assert len({*requests}) == len(requests), "no request repeats another"
        assert "characters are left out here" in read_request_text(suite.llm.requests[1])
