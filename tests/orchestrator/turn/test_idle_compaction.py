"""Chats are compacted between their runs: no first word waits for a summary while the request fits."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import REGISTRY

from headrace.errors import Overloaded
from tests.orchestrator.conftest import House, Open, call
from tests.orchestrator.lifecycle.test_runs import types
from tests.orchestrator.turn.test_compaction import ANSWER, DONE, SMALL, WORDS, fill, of_compaction, told
from tests.support.timing import within

SUMMARY = "They spoke of the weather."


async def ask_until_summarised(it: House) -> None:
    """Ask on until the summary stands in a request."""
    async with within(30):
        while SUMMARY not in told(it.llm.requests[-1]):
            assert not of_compaction(await it.ask("short"))


def spent_between_runs() -> float:
    labels = {"moment": "between_runs", "kind": "input"}
    return REGISTRY.get_sample_value("headrace_compaction_tokens_total", labels) or 0.0


async def until_compacting(it: House) -> None:
    async with within(10):
        while not it.llm.aside_requests:
            await asyncio.sleep(0.01)


async def test_a_chat_that_is_nearly_full_is_compacted_once_the_run_has_ended(house: Open) -> None:
    async with house(ANSWER) as it:
        it.llm.models = [SMALL]
        for number in range(9):
            assert not of_compaction(await it.ask(f"{number}: {WORDS}")), "nobody waits for it"
            if it.llm.aside_requests:
                break
        await ask_until_summarised(it)
        assert it.memory.compact_requests[0].summary_only


async def test_what_a_compaction_between_runs_has_spent_is_told(house: Open) -> None:
    before = spent_between_runs()
    async with house(ANSWER) as it:
        it.llm.models = []
        await fill(it, 9)
        it.llm.models = [SMALL]
        await it.ask("go")  # the last one: another would end the compaction, or make one of its own
        async with within(10):
            while not (context := await it.client.context(it.chat_id)).HasField("compaction"):
                await asyncio.sleep(0.01)
    compaction, usage = context.compaction, context.between_runs_usage
    assert (compaction.run_id, compaction.trigger, compaction.strategy) == ("", "auto", "summary")
    assert compaction.receipt.usage.input_tokens > 0
    assert (compaction.receipt.replaced_messages > 0, compaction.receipt.kept_messages > 0) == (True, True)
    assert usage.input_tokens == compaction.receipt.usage.input_tokens * usage.model_calls
    assert context.chat_usage.model_calls > usage.model_calls
    assert spent_between_runs() - before >= usage.input_tokens, "and in the metrics, with what wrote no summary"


async def test_a_query_does_not_wait_for_a_compaction_of_its_chat(house: Open) -> None:
    async with house(ANSWER) as it:
        it.llm.aside["compact"] = [3600.0]
        it.llm.models = []
        await fill(it, 9)
        it.llm.models = [SMALL]
        assert (await it.ask("go"))[-1]["type"] == "run.complete"
        await until_compacting(it)
        events = await it.ask("and on")
        assert types(events)[-1] == "run.complete"
        assert not of_compaction(events)
        assert len(it.memory.compact_requests) == 1, "one at a time"


async def test_a_chat_past_its_cap_is_compacted_and_pays_for_one_summary_in_ten_runs(house: Open) -> None:
    async with house(ANSWER, memory={"maxRuns": 10}) as it:
        for number in range(25):
            before = len(it.llm.aside_requests)
            assert not of_compaction(await it.ask(f"{number}: {WORDS}"))
            if len(it.llm.aside_requests) > before:
                async with within(10):
                    while it.llm.open:
                        await asyncio.sleep(0.01)
        assert 1 <= len(it.llm.aside_requests) <= 2
        await ask_until_summarised(it)


@pytest.mark.parametrize("failure", ["", "unavailable"])
async def test_without_a_summary_nothing_leaves_the_window(house: Open, failure: str) -> None:
    async with house(ANSWER) as it:
        it.llm.aside["compact"] = [Overloaded("no")] if failure else DONE
        it.llm.models = []
        await fill(it, 9)
        it.llm.models = [SMALL]
        await it.ask("go")
        await until_compacting(it)
        await it.ask("and on")
        assert "0: one two" in told(it.llm.requests[-1])


async def test_people_are_told_once_that_messages_were_shortened(house: Open) -> None:
    turns = [call("look", f'{{"n":{number}}}', call_id=f"c{number}") + DONE for number in range(3)]
    async with house(*turns, ANSWER) as it:
        it.llm.models = [SMALL]
        it.tools.result_chars = 30_000
        events = await it.ask("Look around.")
        notices = [event for event in events if event["type"] == "run.notice"]
        assert [notice["code"] for notice in notices] == ["CONTEXT_SHORTENED"]
        assert events[-1]["type"] == "run.complete"
        requests = [request.SerializeToString() for request in it.llm.requests]
        assert len({*requests}) == len(requests), "none repeats another"
        assert "characters are left out here" in told(it.llm.requests[1])
