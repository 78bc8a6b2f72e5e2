"""Compaction as runs ask for it: the real memory, a model with a small window, and a scripted summariser."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.errors import ChatBusy, ContextLengthExceeded, NotFound, Overloaded
from headrace.v1 import agent_pb2, common_pb2, llm_pb2, memory_pb2
from tests.orchestrator.conftest import BREAK, House, Open, Step, as_json, call, content, finish, summary
from tests.orchestrator.lifecycle.test_runs import assert_paired, types
from tests.support.order import Event, check_order, fold, texts
from tests.support.timing import within

DONE: list[Step] = [llm_pb2.LlmDelta(finish=llm_pb2.LlmFinish(reason="stop"))]
"""Without usage: memory's counts follow what a provider reports, and a scripted figure would be far from them."""

ANSWER = content("All ", "good.") + DONE
WORDS = "one two three four five six seven eight nine ten " * 15
"""About 170 tokens."""

LARGE = WORDS * 6
"""What passes the window of SMALL, in a chat that it did not pass before."""

SMALL = llm_pb2.ModelInfo(provider_key="scripted", model="m", context_window_tokens=2200, output_tokens_max=200)
"""Its requests have 2,000 tokens at most, so that a compaction is due from 1,600 on."""


def of_compaction(events: list[Event]) -> list[Event]:
    return [event for event in events if event["type"].startswith("compaction.")]


def asked_in(request: llm_pb2.ChatRequest) -> list[str]:
    """The first word of each user message."""
    return [message.content[0].text.split()[0] for message in request.messages if message.role == "user"]


def told(request: llm_pb2.ChatRequest) -> str:
    return "\n".join(part.text for message in request.messages for part in message.content)


async def fill(it: House, times: int, agent: str = "react") -> None:
    """Talk until the context is nearly full; nothing is due yet."""
    for number in range(times):
        events = await it.ask(f"{number}: {WORDS}", agent=agent)
        assert not of_compaction(events)


async def history(it: House) -> list[str]:
    """The types of all events of the chat."""
    return [as_json(event)["type"] for event in (await it.client.chat(it.chat_id)).events]


async def compacted_at(it: House, agent: str = "react") -> list[Event]:
    """Talk until a message passes the window, so that its run compacts before its first turn; its events."""
    await fill(it, 5, agent)
    events = await it.ask(f"5: {LARGE}", agent=agent)
    assert of_compaction(events)
    return events


async def test_a_context_that_would_pass_the_window_is_compacted_at_the_runs_entry(house: Open) -> None:
    async with house(ANSWER) as it:
        it.llm.models = [SMALL]
        events = await compacted_at(it)
        start, complete = of_compaction(events)
        assert types(events)[:3] == ["request.query", "run.start", "compaction.start"]
        assert (start["trigger"], "turn" in start) == ("auto", False)
        assert complete["type"] == "compaction.complete"
        assert start["preTokens"] == complete["preTokens"] > complete["postTokens"] > 0
        assert events[-1]["usage"] | {"modelCalls": 2, "inputTokens": 10} == events[-1]["usage"]
        assert "They spoke of the weather." in told(it.llm.requests[-1])
        assert "0:" not in asked_in(it.llm.requests[-1])
        assert [event for event in await history(it) if event.startswith("compaction")] == types([start, complete])
        assert not of_compaction(await it.ask("short"))


@pytest.mark.parametrize(("limit_usd", "is_compacted"), [(0.01, False), (1.0, True)])
async def test_a_summary_is_paid_for_by_the_run(house: Open, limit_usd: float, is_compacted: bool) -> None:
    async with house(ANSWER, budget={"maxCostUsd": limit_usd}) as it:
        priced = {"input_usd_per_mtok_max": 1.0, "output_usd_per_mtok_max": 10.0}
        it.llm.models = [llm_pb2.ModelInfo(model="m", context_window_tokens=2200, output_tokens_max=900, **priced)]  # pyright: ignore[reportArgumentType] - all are numbers
        for number in range(8):
            await it.ask(f"{number}: {WORDS}")
        if not is_compacted:
            assert not it.memory.compact_requests
            return
        request = it.memory.compact_requests[0]
        assert it.llm.aside_requests[0].max_tokens <= request.summary_tokens_max == 900
        assert 0 < request.summary_request_tokens_max < 10_000


async def test_a_turn_in_the_loop_is_compacted_before_it_is_asked(house: Open) -> None:
    turns = [call("look", f'{{"n":{number}}}', call_id=f"c{number}") + DONE for number in range(5)]
    async with house(*turns, ANSWER) as it:
        it.llm.models = [SMALL]
        it.tools.result_chars = 1500
        events = await it.ask("Look around.")
        start, end = of_compaction(events)[:2]
        assert start["turn"] == end["turn"] > 1
        assert events[-1]["type"] == "run.complete"
        for request in it.llm.requests:
            assert_paired(request)
        assert "Look around." in told(it.llm.requests[-1]), "the message that is being answered stays"


@pytest.mark.parametrize("before", [0, 3])
async def test_a_turn_that_the_provider_finds_too_long_is_compacted_and_tried_once_more(
    house: Open, before: int
) -> None:
    too_long: list[Step] = [ContextLengthExceeded("too long")]
    async with house(*[ANSWER] * before, too_long, ANSWER) as it:
        it.llm.models = [llm_pb2.ModelInfo(provider_key="scripted", model="m", context_window_tokens=100_000)]
        await fill(it, before)
        events = await it.ask(WORDS)
    kinds = types(of_compaction(events))
    if before:
        assert kinds == ["compaction.start", "compaction.complete"]
        assert texts(events, "content") == ["All ", "good."]
        assert events[-1]["usage"]["modelCalls"] == 2
        assert "0:" not in asked_in(it.llm.requests[-1])
    else:
        assert kinds == ["compaction.start", "compaction.fail"]
        assert of_compaction(events)[1]["reason"] == "NOTHING_TO_COMPACT"
        assert events[-1]["error"]["code"] == "CONTEXT_LENGTH_EXCEEDED"
        assert len(it.llm.aside_requests) == 0


async def test_a_compacted_turn_whose_gateway_goes_away_is_asked_again_as_it_was_compacted(house: Open) -> None:
    too_long: list[Step] = [ContextLengthExceeded("too long")]
    async with house(ANSWER, ANSWER, ANSWER, too_long, [*content("Hel"), BREAK], ANSWER) as it:
        it.llm.models = [llm_pb2.ModelInfo(provider_key="scripted", model="m", context_window_tokens=100_000)]
        await fill(it, 3)
        events = await it.ask(WORDS)
        assert it.llm.requests[-1] == it.llm.requests[-2] != it.llm.requests[-3]
    assert types(of_compaction(events)) == ["compaction.start", "compaction.complete"]
    assert [block["text"] for block in fold(events)["blocks"].values()] == ["All good."]
    assert events[-1]["type"] == "run.complete"


async def test_what_is_too_long_a_second_time_is_the_error(house: Open) -> None:
    too_long: list[Step] = [ContextLengthExceeded("too long")]
    async with house(ANSWER, ANSWER, ANSWER, too_long, too_long, ANSWER) as it:
        await fill(it, 3)
        events = await it.ask(WORDS)
        assert len(it.llm.requests) == 5
        assert len(of_compaction(events)) == 2
        assert events[-1]["error"]["code"] == "CONTEXT_LENGTH_EXCEEDED"
        assert (await it.ask("again"))[-1]["type"] == "run.complete"


async def test_an_answer_that_has_begun_is_not_tried_again(house: Open) -> None:
    broken: list[Step] = [*content("Hel"), ContextLengthExceeded("too long")]
    async with house(ANSWER, ANSWER, broken) as it:
        await fill(it, 2)
        events = await it.ask(WORDS)
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
async def test_a_summariser_that_fails_does_not_end_the_run(house: Open, steps: list[Step], reason: str) -> None:
    async with house(ANSWER) as it:
        it.llm.models = [SMALL]
        it.llm.aside["compact"] = steps
        events = await compacted_at(it)
        assert types(of_compaction(events)) == ["compaction.start", "compaction.fallback"]
        assert of_compaction(events)[1]["reason"] == reason
        assert events[-1]["type"] == "run.complete"
        assert WORDS in told(it.llm.requests[-1])
        assert (await it.ask("again"))[-1]["type"] == "run.complete"


async def test_a_cancel_in_mid_compaction_leaves_the_chat_in_order(house: Open) -> None:
    async with house(ANSWER) as it:
        it.llm.models = [SMALL]
        it.llm.aside["compact"] = [*content("<summary>Hel"), 3600.0]
        events: list[Event] = []
        for number in range(12):
            async with it.client.ask(
                f"{number}: {LARGE if number > 4 else WORDS}", agent_key="react", chat_id=it.chat_id or None
            ) as deltas:
                events = []
                async for delta in deltas:
                    events.append(as_json(delta))
                    if events[-1]["type"] == "run.start":
                        it.chat_id = events[-1]["chatId"]
                    if events[-1]["type"] == "compaction.start":
                        async with within(1):
                            await it.client.cancel(events[1]["runId"])
            if of_compaction(events):
                break
        assert types(events)[-2:] == ["compaction.start", "run.cancel"]
        async with within(1):
            while it.llm.open:
                await asyncio.sleep(0.01)
        it.llm.aside["compact"] = summary()
        again = await it.ask("again")
        assert types(of_compaction(again)) == ["compaction.start", "compaction.complete"]
        assert again[-1]["type"] == "run.complete"
        assert_paired(it.llm.requests[-1])


async def test_without_a_call_left_beside_the_turns_own_nothing_is_compacted(house: Open) -> None:
    async with house(ANSWER, budget={"maxModelCalls": 1}) as it:
        it.llm.models = [SMALL]
        for number in range(12):
            events = await it.ask(f"{number}: {WORDS}")
            assert not of_compaction(events)
            assert events[-1]["type"] == "run.complete"
    assert it.llm.aside_requests == []


START = memory_pb2.CompactDelta(start=agent_pb2.CompactionStart(trigger="auto", pre_tokens=1700))
COST = memory_pb2.CompactDelta(usage=common_pb2.Usage(input_tokens=7, output_tokens=1))
FAIL = memory_pb2.CompactDelta(fail=agent_pb2.CompactionFail(reason="NOTHING_TO_COMPACT"))


async def nearly_full(it: House, times: int = 10) -> None:
    """Talk until a compaction is due from the next turns on."""
    it.llm.models = []
    await fill(it, times)
    it.llm.models = [SMALL]


@pytest.mark.parametrize(("grows_by", "most"), [(1, 1), (150, 3)])
async def test_what_failed_is_tried_again_only_when_the_context_has_grown(
    house: Open, grows_by: int, most: int
) -> None:
    looking = [call("look", f'{{"n":{n}}}', call_id=f"c{n}") + DONE for n in range(5)]
    async with house(*[ANSWER] * 8, *looking, ANSWER) as it:
        await nearly_full(it, 8)
        it.memory.compaction = [START, COST, FAIL]
        it.tools.result_chars = grows_by
        events = await it.ask("go")
    tries = len(of_compaction(events)) // 2
    assert types(of_compaction(events)) == ["compaction.start", "compaction.fail"] * tries
    assert min(most, 2) <= tries <= most
    assert events[-1]["type"] == "run.complete"
    assert events[-1]["usage"] | {"modelCalls": 6 + tries, "inputTokens": 7 * tries} == events[-1]["usage"]


@pytest.mark.parametrize("steps", [[START, FAIL], [START, Overloaded("no")], [START, COST, Overloaded("no")]])
async def test_a_compaction_that_breaks_off_has_failed_and_the_run_goes_on(house: Open, steps: Any) -> None:
    async with house(ANSWER) as it:
        await nearly_full(it)
        it.memory.compaction = steps
        events = await it.ask(LARGE)
    assert types(of_compaction(events)) == ["compaction.start", "compaction.fail"]
    assert events[-1]["type"] == "run.complete"
    # Where memory refused by itself no model was asked.
    assert events[-1]["usage"]["modelCalls"] == (1 if steps == [START, FAIL] else 2)


async def test_an_error_before_its_start_is_the_runs(house: Open) -> None:
    async with house(ANSWER) as it:
        await nearly_full(it)
        it.memory.compaction = [Overloaded("no")]
        events = await it.ask(LARGE)
        assert not of_compaction(events)
        assert events[-1]["error"]["code"] == "OVERLOADED"
        it.memory.compaction = []
        assert (await it.ask("again"))[-1]["type"] == "run.complete"


@pytest.mark.parametrize(("max_tokens", "output_tokens"), [(None, 200), (77, 77)])
async def test_memory_is_told_the_models_window_and_the_answers_room(
    house: Open, max_tokens: int | None, output_tokens: int
) -> None:
    config = {"providerKey": "scripted", "model": "m", "max_tokens": max_tokens}
    async with house(ANSWER, modelConfig=config) as it:
        it.llm.models = [SMALL]
        await it.ask("hello")
        await it.ask("/compact")
        [request] = it.memory.compact_requests
    assert (request.limits.context_window_tokens, request.limits.output_tokens) == (2200, output_tokens)
    assert [tool.name for tool in request.tools] == ["look", "slow"]


async def test_a_gateway_that_cannot_list_models_leaves_the_window_to_memory(house: Open) -> None:
    async with house(ANSWER) as it:
        it.llm.models = Overloaded("no")
        assert (await it.ask("hello"))[-1]["type"] == "run.complete"
        assert of_compaction(await it.ask("/compact"))[-1]["reason"] == "NOTHING_TO_COMPACT"
        assert it.memory.compact_requests[0].limits == memory_pb2.ModelLimits(provider_key="scripted", model="m")


async def test_summaries_are_written_by_the_providers_model_for_them(house: Open) -> None:
    small = llm_pb2.ModelInfo()
    small.CopyFrom(SMALL)
    small.summary_model = "cheap"
    async with house(ANSWER) as it:
        it.llm.models = [small, llm_pb2.ModelInfo(provider_key="scripted", model="cheap", context_window_tokens=900)]
        await compacted_at(it)
        request = it.llm.aside_requests[-1]
    assert (request.provider_key, request.model, request.stage) == ("scripted", "cheap", "compact")
    assert len(told(request)) < len(WORDS) * 6, "cut to the summariser's window"


async def test_the_summariser_is_asked_with_the_turns_own_prefix(house: Open) -> None:
    async with house(ANSWER) as it:
        await fill(it, 4)
        await it.ask("/compact")
        turn, asked = it.llm.requests[-1], it.llm.aside_requests[-1]
    assert list(turn.tools) == list(asked.tools)
    assert asked.tool_choice == "none"
    # The system message says the minute.
    assert list(asked.messages)[1 : len(turn.messages)] == list(turn.messages)[1:]


async def test_a_command_compacts_and_no_model_ever_sees_it(house: Open) -> None:
    async with house(ANSWER) as it:
        await fill(it, 4, "oneshot")
        async with it.client.ask("/compact  keep the numbers ", chat_id=it.chat_id) as deltas:
            events = [as_json(delta) async for delta in deltas]
        assert types(events) == [
            "request.query",
            "run.start",
            "compaction.start",
            "compaction.complete",
            "run.complete",
        ]
        assert events[1]["agentKey"] == "oneshot"
        assert {event["trigger"] for event in of_compaction(events)} == {"manual"}
        assert events[-1]["finishReason"] == "stop"
        assert events[-1]["usage"]["modelCalls"] == 1
        assert told(it.llm.aside_requests[-1]).endswith("heed this:\n\nkeep the numbers")
        await it.ask("and now?", agent="oneshot")
    request = it.llm.requests[-1]
    assert "They spoke of the weather." in told(request)
    assert "/compact" not in told(request)
    assert len(it.llm.requests) == 5


async def test_nothing_to_compact_is_said_and_completes(house: Open) -> None:
    async with house(ANSWER) as it:
        await it.ask("hello", agent="oneshot")
        events = await it.ask("/compact", agent="oneshot")
    assert types(of_compaction(events)) == ["compaction.start", "compaction.fail"]
    assert of_compaction(events)[1]["reason"] == "NOTHING_TO_COMPACT"
    assert (events[-1]["finishReason"], events[-1]["usage"]["modelCalls"]) == ("stop", 0)
    assert it.llm.aside_requests == []


async def test_files_that_were_mentioned_go_into_the_summary(house: Open) -> None:
    async with house(ANSWER) as it:
        it.tools.files = {"src/a.py": b"x" + b"\n" * 1200, "a.py": b"not this", "b.bin": b"\0\1", "报告.md": b"# r"}
        await fill(it, 4, "oneshot")
        await it.ask("See src/a.py, b.bin and 请看报告.md。", agent="oneshot")
        events = await it.ask("/compact", agent="oneshot")
        asked = told(it.llm.aside_requests[-1])
    assert of_compaction(events)[1]["filesIncluded"] == ["报告.md", "src/a.py"]
    assert "[File: src/a.py]\nx\n" in asked
    assert "[200 more lines]" in asked
    assert "not this" not in asked


async def test_files_are_looked_for_in_all_of_the_log(house: Open) -> None:
    async with house(ANSWER) as it:
        it.tools.files = {"early.txt": b"the plan"}
        await it.ask("See early.txt", agent="oneshot")
        for number in range(25):
            await it.ask(f"{number}", agent="oneshot")
        events = await it.ask("/compact", agent="oneshot")
    assert "The plan".lower() in told(it.llm.aside_requests[-1])
    assert of_compaction(events)[1]["type"] == "compaction.complete"


async def test_a_chat_too_large_for_the_summary_model_takes_several_calls(house: Open) -> None:
    small = llm_pb2.ModelInfo()
    small.CopyFrom(SMALL)
    small.summary_model = "cheap"
    async with house(ANSWER) as it:
        it.llm.models = [small, llm_pb2.ModelInfo(provider_key="scripted", model="cheap", context_window_tokens=900)]
        events = await compacted_at(it)
        receipt = of_compaction(events)[1]["receipt"]
        calls = len(it.llm.aside_requests)
    assert calls > 1
    assert receipt["modelCalls"] == calls
    assert events[-1]["usage"]["modelCalls"] == calls + 1, "each is the run's"
    assert events[-1]["usage"]["inputTokens"] == 10 * calls


async def test_an_answer_that_is_no_summary_is_asked_for_once_more_while_calls_are_left(house: Open) -> None:
    refusal = [*content("I'm sorry, I can't help with that."), *finish()]
    async with house(ANSWER, budget={"maxModelCalls": 2}) as it:
        it.llm.models = [SMALL]
        it.llm.aside["compact"] = refusal
        events = await compacted_at(it)
        assert of_compaction(events)[1]["reason"] == "INCOMPLETE_SUMMARY"
        assert (len(it.llm.aside_requests), events[-1]["usage"]["modelCalls"]) == (1, 2), "the turn needs the other"
    async with house(ANSWER, budget={"maxModelCalls": 3}) as it:
        it.llm.models = [SMALL]
        it.llm.aside["compact"] = refusal
        events = await compacted_at(it)
        assert (len(it.llm.aside_requests), events[-1]["usage"]["modelCalls"]) == (2, 3)
        assert "I'm sorry" not in told(it.llm.requests[-1])


async def test_a_workspace_that_cannot_be_listed_is_a_compaction_without_files(house: Open) -> None:
    async with house(ANSWER) as it:
        it.tools.lists_files = False
        it.tools.files = {"a.py": b"x"}
        await fill(it, 4)
        await it.ask("See a.py")
        events = await it.ask("/compact")
    assert types(of_compaction(events)) == ["compaction.start", "compaction.complete"]
    assert of_compaction(events)[1]["filesIncluded"] == []


async def test_a_lost_answer_of_the_append_does_not_double_a_compaction_event(house: Open) -> None:
    async with house(ANSWER) as it:
        it.llm.models = [SMALL]
        lost: list[str] = []

        async def lose(request: memory_pb2.AppendRequest) -> None:
            if request.lines[0].event.event.HasField("compaction_complete") and not lost:
                lost.append(request.request_id)
                raise Overloaded("lost on the way")

        it.memory.after = lose
        events = await compacted_at(it)
        assert lost
        assert events[-1]["type"] == "run.complete"
        assert (await history(it)).count("compaction.complete") == 1
        assert (await it.ask("again"))[-1]["type"] == "run.complete"


async def compact(it: House, chat_id: str) -> list[Event]:
    """The Compact RPC, its order checked."""
    async with it.client.compact(chat_id) as deltas:
        events = [as_json(delta) async for delta in deltas]
    check_order(events)
    return events


async def test_the_rpc_does_the_same_as_the_command(house: Open) -> None:
    async with house(ANSWER) as it:
        await fill(it, 4, "oneshot")
        events = await compact(it, it.chat_id)
        assert (events[0]["message"], events[1]["agentKey"]) == ("/compact", "oneshot")
        assert types(of_compaction(events)) == ["compaction.start", "compaction.complete"]
        again = await compact(it, it.chat_id)
        assert of_compaction(again)[-1]["reason"] == "NOTHING_TO_COMPACT"
        assert again[-1]["finishReason"] == "stop"


async def test_a_chat_that_is_busy_or_unknown_is_not_compacted(house: Open) -> None:
    run_id = ""
    async with house([*content("Hel"), 3600.0]) as it:
        with pytest.raises(NotFound):
            await compact(it, "5f0c0000-0000-4000-8000-000000000009")
        async with it.client.ask("hello", agent_key="oneshot") as deltas:
            async for delta in deltas:
                if delta.WhichOneof("payload") == "run_start":
                    run_id, it.chat_id = delta.run_start.run_id, delta.run_start.chat_id
                elif delta.WhichOneof("payload") == "content_delta":
                    with pytest.raises(ChatBusy) as caught:
                        await compact(it, it.chat_id)
                    assert caught.value.metadata["runId"] == run_id
                    await it.client.cancel(run_id)
        assert list((await it.client.chat(it.chat_id)).events)[-1].HasField("run_cancel")
