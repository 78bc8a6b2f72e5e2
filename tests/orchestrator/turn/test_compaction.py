"""Compaction as runs ask for it: the real memory, a model with a small window, and a scripted summariser."""

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
    compacted_at,
    fill,
    of_compaction,
    told,
)
from tests.support.orchestrator.steps import BREAK, Step, answer, call, content, finish, summary
from tests.support.orchestrator.watched_memory import Refusal
from tests.support.order import Event, check_order, fold, texts
from tests.support.timing import within
from tests.support.waiting import wait_until


def asked_in(request: llm_pb2.ChatRequest) -> list[str]:
    """The first word of each user message."""
    return [message.content[0].text.split()[0] for message in request.messages if message.role == "user"]


async def history(suite: Suite) -> list[str]:
    """The types of all events of the chat."""
    return [as_json(event)["type"] for event in (await suite.client.chat(suite.chat_id)).events]


async def test_a_context_that_would_pass_the_window_is_compacted_at_the_runs_entry(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        suite.llm.models = [SMALL]
        events = await compacted_at(suite)
        start, complete = of_compaction(events)
        assert types(events)[:3] == ["request.query", "run.start", "compaction.start"]
        assert (start["trigger"], "turn" in start) == ("auto", False)
        assert complete["type"] == "compaction.complete"
        assert start["preTokens"] == complete["preTokens"] > complete["postTokens"] > 0
        assert events[-1]["usage"] | {"modelCalls": 2, "inputTokens": 10} == events[-1]["usage"]
        assert "They spoke of the weather." in told(suite.llm.requests[-1])
        assert "0:" not in asked_in(suite.llm.requests[-1])
        assert [event for event in await history(suite) if event.startswith("compaction")] == types([start, complete])
        assert not of_compaction(await suite.ask("short"))


@pytest.mark.parametrize(("limit_usd", "is_compacted"), [(0.01, False), (1.0, True)])
async def test_a_summary_is_paid_for_by_the_run(serve: Serve, limit_usd: float, is_compacted: bool) -> None:
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


async def test_a_turn_in_the_loop_is_compacted_before_it_is_asked(serve: Serve) -> None:
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
        assert "Look around." in told(suite.llm.requests[-1]), "the message that is being answered stays"


TOO_LONG: list[Step] = [ContextLengthExceeded("too long")]
ROOMY = llm_pb2.ModelInfo(provider_key="scripted", model="m", context_window_tokens=100_000)


@pytest.mark.parametrize("before", [0, 3])
async def test_a_turn_that_the_provider_finds_too_long_is_compacted_and_tried_once_more(
    serve: Serve, before: int
) -> None:
    async with serve(*[ANSWER] * before, TOO_LONG, ANSWER) as suite:
        suite.llm.models = [ROOMY]
        await fill(suite, before)
        events = await suite.ask(WORDS)
    kinds = types(of_compaction(events))
    if before:
        assert kinds == ["compaction.start", "compaction.complete"]
        assert texts(events, "content") == ["All ", "good."]
        assert events[-1]["usage"]["modelCalls"] == 2
        assert "0:" not in asked_in(suite.llm.requests[-1])
    else:
        assert kinds == ["compaction.start", "compaction.fail"]
        assert of_compaction(events)[1]["reason"] == "NOTHING_TO_COMPACT"
        assert events[-1]["error"]["code"] == "CONTEXT_LENGTH_EXCEEDED"
        assert len(suite.llm.aside_requests) == 0


async def test_a_compacted_turn_whose_gateway_goes_away_is_asked_again_as_it_was_compacted(serve: Serve) -> None:
    async with serve(ANSWER, ANSWER, ANSWER, TOO_LONG, [*content("Hel"), BREAK], ANSWER) as suite:
        suite.llm.models = [ROOMY]
        await fill(suite, 3)
        events = await suite.ask(WORDS)
        assert suite.llm.requests[-1] == suite.llm.requests[-2] != suite.llm.requests[-3]
    assert types(of_compaction(events)) == ["compaction.start", "compaction.complete"]
    assert [block["text"] for block in fold(events)["blocks"].values()] == ["All good."]
    assert events[-1]["type"] == "run.complete"


async def test_what_is_too_long_a_second_time_is_the_error(serve: Serve) -> None:
    async with serve(ANSWER, ANSWER, ANSWER, TOO_LONG, TOO_LONG, ANSWER) as suite:
        await fill(suite, 3)
        events = await suite.ask(WORDS)
        assert len(suite.llm.requests) == 5
        assert len(of_compaction(events)) == 2
        assert events[-1]["error"]["code"] == "CONTEXT_LENGTH_EXCEEDED"
        assert (await suite.ask("again"))[-1]["type"] == "run.complete"


async def test_an_answer_that_has_begun_is_not_tried_again(serve: Serve) -> None:
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
        events = await compacted_at(suite)
        assert types(of_compaction(events)) == ["compaction.start", "compaction.fallback"]
        assert of_compaction(events)[1]["reason"] == reason
        assert events[-1]["type"] == "run.complete"
        assert WORDS in told(suite.llm.requests[-1])
        assert (await suite.ask("again"))[-1]["type"] == "run.complete"


async def test_a_cancel_in_mid_compaction_leaves_the_chat_in_order(serve: Serve) -> None:
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
        again = await suite.ask("again")
        assert types(of_compaction(again)) == ["compaction.start", "compaction.complete"]
        assert again[-1]["type"] == "run.complete"
        assert_paired(suite.llm.requests[-1])


async def test_without_a_call_left_beside_the_turns_own_nothing_is_compacted(serve: Serve) -> None:
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


async def nearly_full(suite: Suite, times: int = 10) -> None:
    """Talk until a compaction is due from the next turns on."""
    suite.llm.models = []
    await fill(suite, times)
    suite.llm.models = [SMALL]


@pytest.mark.parametrize(("grows_by", "most"), [(1, 1), (150, 3)])
async def test_what_failed_is_tried_again_only_when_the_context_has_grown(
    serve: Serve, grows_by: int, most: int
) -> None:
    looking = [call("look", f'{{"n":{n}}}', call_id=f"c{n}") + DONE for n in range(5)]
    async with serve(*[ANSWER] * 8, *looking, ANSWER) as suite:
        await nearly_full(suite, 8)
        suite.memory.compaction = [START, COST, FAIL]
        suite.tools.result_chars = grows_by
        events = await suite.ask("go")
    tries = len(of_compaction(events)) // 2
    assert types(of_compaction(events)) == ["compaction.start", "compaction.fail"] * tries
    assert min(most, 2) <= tries <= most
    assert events[-1]["type"] == "run.complete"
    assert events[-1]["usage"] | {"modelCalls": 6 + tries, "inputTokens": 7 * tries} == events[-1]["usage"]


@pytest.mark.parametrize("steps", [[START, FAIL], [START, Overloaded("no")], [START, COST, Overloaded("no")]])
async def test_a_compaction_that_breaks_off_has_failed_and_the_run_goes_on(serve: Serve, steps: Any) -> None:
    async with serve(ANSWER) as suite:
        await nearly_full(suite)
        suite.memory.compaction = steps
        events = await suite.ask(LARGE)
    assert types(of_compaction(events)) == ["compaction.start", "compaction.fail"]
    assert events[-1]["type"] == "run.complete"
    # Where memory refused by itself no model was asked.
    assert events[-1]["usage"]["modelCalls"] == (1 if steps == [START, FAIL] else 2)


async def test_an_error_before_its_start_is_the_runs(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        await nearly_full(suite)
        suite.memory.compaction = [Overloaded("no")]
        events = await suite.ask(LARGE)
        assert not of_compaction(events)
        assert events[-1]["error"]["code"] == "OVERLOADED"
        suite.memory.compaction = []
        assert (await suite.ask("again"))[-1]["type"] == "run.complete"


@pytest.mark.parametrize(("max_tokens", "output_tokens"), [(None, 200), (77, 77)])
async def test_memory_is_told_the_models_window_and_the_answers_room(
    serve: Serve, max_tokens: int | None, output_tokens: int
) -> None:
    async with serve(ANSWER, modelConfig=MODEL | {"max_tokens": max_tokens}) as suite:
        suite.llm.models = [SMALL]
        await suite.ask("hello")
        await suite.ask("/compact")
        [request] = suite.memory.compact_requests
    assert (request.limits.context_window_tokens, request.limits.output_tokens) == (2200, output_tokens)
    assert [tool.name for tool in request.tools] == ["look", "slow"]


async def test_a_gateway_that_cannot_list_models_leaves_the_window_to_the_built_in_table(serve: Serve) -> None:
    async with serve(ANSWER, modelConfig={"providerKey": "scripted", "model": "gpt-4o"}) as suite:
        suite.llm.models = Overloaded("no")
        assert (await suite.ask("hello"))[-1]["type"] == "run.complete"
        assert of_compaction(await suite.ask("/compact"))[-1]["reason"] == "NOTHING_TO_COMPACT"
        limits = suite.memory.compact_requests[0].limits
        assert (limits.model, limits.context_window_tokens, limits.output_tokens) == ("gpt-4o", 128_000, 16_384)


async def test_summaries_are_written_by_the_providers_model_for_them_in_as_many_calls_as_its_window_takes(
    serve: Serve,
) -> None:
    small = llm_pb2.ModelInfo()
    small.CopyFrom(SMALL)
    small.summary_model = "cheap"
    async with serve(ANSWER) as suite:
        suite.llm.models = [small, llm_pb2.ModelInfo(provider_key="scripted", model="cheap", context_window_tokens=900)]
        events = await compacted_at(suite)
        receipt = of_compaction(events)[1]["receipt"]
        requests = [*suite.llm.aside_requests]
    assert len(requests) > 1
    for request in requests:
        assert (request.provider_key, request.model, request.stage) == ("scripted", "cheap", "compact")
        assert len(told(request)) < len(WORDS) * 6, "cut to the summariser's window"
    assert receipt["modelCalls"] == len(requests)
    assert events[-1]["usage"]["modelCalls"] == len(requests) + 1, "each is the run's"
    assert events[-1]["usage"]["inputTokens"] == 10 * len(requests)


async def test_the_summariser_is_asked_with_the_turns_own_prefix(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        await fill(suite, 4)
        await suite.ask("/compact")
        turn, asked = suite.llm.raw_requests[-1], suite.llm.aside_requests[-1]
    assert list(turn.tools) == list(asked.tools)
    assert asked.tool_choice == "none"
    # The system message says the minute.
    assert list(asked.messages)[1 : len(turn.messages)] == list(turn.messages)[1:]


async def test_a_command_compacts_and_no_model_ever_sees_it(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        await fill(suite, 4, "oneshot")
        events = await ask_for(suite.client, "/compact  keep the numbers ", chat_id=suite.chat_id)
        assert types(events)[:3] == ["request.query", "run.start", "compaction.start"]
        assert types(events)[3:] == ["compaction.complete", "run.complete"]
        assert events[1]["agentKey"] == "oneshot"
        assert {event["trigger"] for event in of_compaction(events)} == {"manual"}
        assert events[-1]["finishReason"] == "stop"
        assert events[-1]["usage"]["modelCalls"] == 1
        assert told(suite.llm.aside_requests[-1]).endswith("heed this:\n\nkeep the numbers")
        await suite.ask("and now?", agent="oneshot")
    request = suite.llm.requests[-1]
    assert "They spoke of the weather." in told(request)
    assert "/compact" not in told(request)
    assert len(suite.llm.requests) == 5


async def test_nothing_to_compact_is_said_and_completes(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        await suite.ask("hello", agent="oneshot")
        events = await suite.ask("/compact", agent="oneshot")
    assert types(of_compaction(events)) == ["compaction.start", "compaction.fail"]
    assert of_compaction(events)[1]["reason"] == "NOTHING_TO_COMPACT"
    assert (events[-1]["finishReason"], events[-1]["usage"]["modelCalls"]) == ("stop", 0)
    assert suite.llm.aside_requests == []


async def test_files_that_were_mentioned_go_into_the_summary(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        suite.tools.files = {"src/a.py": b"x" + b"\n" * 1200, "a.py": b"not this", "b.bin": b"\0\1", "报告.md": b"# r"}
        await fill(suite, 4, "oneshot")
        await suite.ask("See src/a.py, b.bin and 请看报告.md。", agent="oneshot")
        events = await suite.ask("/compact", agent="oneshot")
        asked = told(suite.llm.aside_requests[-1])
    assert of_compaction(events)[1]["filesIncluded"] == ["报告.md", "src/a.py"]
    assert "[File: src/a.py]\nx\n" in asked
    assert "[200 more lines: read_file with firstLine 1001 shows them]" in asked
    assert "not this" not in asked


async def test_files_are_looked_for_in_all_of_the_log(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        suite.tools.files = {"early.txt": b"the plan"}
        await suite.ask("See early.txt", agent="oneshot")
        for number in range(25):
            await suite.ask(f"{number}", agent="oneshot")
        events = await suite.ask("/compact", agent="oneshot")
    assert "The plan".lower() in told(suite.llm.aside_requests[-1])
    assert of_compaction(events)[1]["type"] == "compaction.complete"


@pytest.mark.parametrize("calls", [2, 3])  # the turn needs one of them
async def test_an_answer_that_is_no_summary_is_asked_for_once_more_while_calls_are_left(
    serve: Serve, calls: int
) -> None:
    async with serve(ANSWER, budget={"maxModelCalls": calls}) as suite:
        suite.llm.models = [SMALL]
        suite.llm.aside["compact"] = answer("I'm sorry, I can't help with that.")
        events = await compacted_at(suite)
        assert of_compaction(events)[1]["reason"] == "INCOMPLETE_SUMMARY"
        assert (len(suite.llm.aside_requests), events[-1]["usage"]["modelCalls"]) == (calls - 1, calls)
        assert "I'm sorry" not in told(suite.llm.requests[-1])


async def test_a_workspace_that_cannot_be_listed_is_a_compaction_without_files(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        suite.tools.lists_files = False
        suite.tools.files = {"a.py": b"x"}
        await fill(suite, 4)
        await suite.ask("See a.py")
        events = await suite.ask("/compact")
    assert types(of_compaction(events)) == ["compaction.start", "compaction.complete"]
    assert of_compaction(events)[1]["filesIncluded"] == []


async def test_a_lost_answer_of_the_append_does_not_double_a_compaction_event(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        suite.llm.models = [SMALL]
        suite.memory.after = loss = Refusal("compaction_complete", Overloaded("lost on the way"))
        events = await compacted_at(suite)
        assert not loss.left
        assert events[-1]["type"] == "run.complete"
        assert (await history(suite)).count("compaction.complete") == 1
        assert (await suite.ask("again"))[-1]["type"] == "run.complete"


async def compact(suite: Suite, chat_id: str) -> list[Event]:
    """The Compact RPC, its order checked."""
    async with suite.client.compact(chat_id) as deltas:
        events = [as_json(delta) async for delta in deltas]
    check_order(events)
    return events


async def test_the_rpc_does_the_same_as_the_command(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        await fill(suite, 4, "oneshot")
        events = await compact(suite, suite.chat_id)
        assert (events[0]["message"], events[1]["agentKey"]) == ("/compact", "oneshot")
        assert types(of_compaction(events)) == ["compaction.start", "compaction.complete"]
        again = await compact(suite, suite.chat_id)
        assert of_compaction(again)[-1]["reason"] == "NOTHING_TO_COMPACT"
        assert again[-1]["finishReason"] == "stop"


async def test_a_chat_that_is_busy_or_unknown_is_not_compacted(serve: Serve) -> None:
    async with serve([*content("Hel"), 3600.0]) as suite:
        with pytest.raises(NotFound):
            await compact(suite, "5f0c0000-0000-4000-8000-000000000009")

        async def compact_and_cancel(event: Event) -> None:
            with pytest.raises(ChatBusy) as caught:
                await compact(suite, CHAT)
            assert caught.value.metadata["runId"] == event["runId"]
            await suite.client.cancel(event["runId"])

        await ask(suite, ("content.delta", compact_and_cancel), agent_key="oneshot")
        assert list((await suite.client.chat(suite.chat_id)).events)[-1].HasField("run_cancel")


async def ask_until_summarised(suite: Suite) -> None:
    """Ask on until the summary stands in a request."""
    async with within(30):
        while "They spoke of the weather." not in told(suite.llm.requests[-1]):
            assert not of_compaction(await suite.ask("short"))


def spent_between_runs() -> float:
    labels = {"moment": "between_runs", "kind": "input"}
    return REGISTRY.get_sample_value("headrace_compaction_tokens_total", labels) or 0.0


async def until_compacting(suite: Suite) -> None:
    async with within(10):
        await wait_until(lambda: suite.llm.aside_requests)


async def test_a_chat_that_is_nearly_full_is_compacted_once_the_run_has_ended(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        suite.llm.models = [SMALL]
        for number in range(9):
            assert not of_compaction(await suite.ask(f"{number}: {WORDS}")), "nobody waits for it"
            if suite.llm.aside_requests:
                break
        await ask_until_summarised(suite)
        assert suite.memory.compact_requests[0].summary_only


async def test_what_a_compaction_between_runs_has_spent_is_told(serve: Serve) -> None:
    before = spent_between_runs()
    async with serve(ANSWER) as suite:
        await nearly_full(suite, 9)
        await suite.ask("go")  # the last one: another would end the compaction, or make one of its own
        async with within(10):
            while not (context := await suite.client.context(suite.chat_id)).HasField("compaction"):
                await asyncio.sleep(0.01)
    compaction, usage = context.compaction, context.between_runs_usage
    assert (compaction.run_id, compaction.trigger, compaction.strategy) == ("", "auto", "summary")
    assert compaction.receipt.usage.input_tokens > 0
    assert (compaction.receipt.replaced_messages > 0, compaction.receipt.kept_messages > 0) == (True, True)
    assert usage.input_tokens == compaction.receipt.usage.input_tokens * usage.model_calls
    assert context.chat_usage.model_calls > usage.model_calls
    assert spent_between_runs() - before >= usage.input_tokens, "and in the metrics, with what wrote no summary"


async def test_a_query_does_not_wait_for_a_compaction_of_its_chat(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        suite.llm.aside["compact"] = [3600.0]
        await nearly_full(suite, 9)
        assert (await suite.ask("go"))[-1]["type"] == "run.complete"
        await until_compacting(suite)
        events = await suite.ask("and on")
        assert types(events)[-1] == "run.complete"
        assert not of_compaction(events)
        assert len(suite.memory.compact_requests) == 1, "one at a time"


async def test_a_turn_that_is_too_long_is_tried_again_where_another_has_compacted_the_chat(serve: Serve) -> None:
    async with serve(*[ANSWER] * 10, TOO_LONG, ANSWER) as suite:
        suite.llm.aside["compact"] = [5.0, *summary()]
        await nearly_full(suite, 9)
        await suite.ask("go")
        await until_compacting(suite)
        suite.llm.aside["compact"] = [20.0, *summary()]
        events = await suite.ask("and on")
        assert [event.get("reason") for event in of_compaction(events)] == [None, "ALREADY_COMPACTED"]
        assert events[-1]["type"] == "run.complete"
        assert "They spoke of the weather." in told(suite.llm.requests[-1])


async def test_a_chat_past_its_cap_is_compacted_and_pays_for_one_summary_in_ten_runs(serve: Serve) -> None:
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
async def test_without_a_summary_nothing_leaves_the_window(serve: Serve, failure: str) -> None:
    async with serve(ANSWER) as suite:
        suite.llm.aside["compact"] = [Overloaded("no")] if failure else DONE
        await nearly_full(suite, 9)
        await suite.ask("go")
        await until_compacting(suite)
        await suite.ask("and on")
        assert "0: one two" in told(suite.llm.requests[-1])


async def test_people_are_told_once_that_messages_were_shortened(serve: Serve) -> None:
    turns = [call("look", f'{{"n":{number}}}', call_id=f"c{number}") + DONE for number in range(3)]
    async with serve(*turns, ANSWER) as suite:
        suite.llm.models = [SMALL]
        suite.tools.result_chars = 30_000
        events = await suite.ask("Look around.")
        notices = [event for event in events if event["type"] == "run.notice"]
        assert [notice["code"] for notice in notices] == ["CONTEXT_SHORTENED"]
        assert events[-1]["type"] == "run.complete"
        requests = [request.SerializeToString() for request in suite.llm.requests]
        assert len({*requests}) == len(requests), "none repeats another"
        assert "characters are left out here" in told(suite.llm.requests[1])
