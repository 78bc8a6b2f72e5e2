"""Chats are compacted between their runs: no first word waits for a summary while the request fits."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import REGISTRY

from headrace.errors import Overloaded
from tests.support.orchestrator import Serve, Suite, types
from tests.support.orchestrator.compaction import ANSWER, DONE, SMALL, WORDS, fill, of_compaction, told
from tests.support.orchestrator.steps import call
from tests.support.timing import within

SUMMARY = "They spoke of the weather."


async def ask_until_summarised(suite: Suite) -> None:
    """Ask on until the summary stands in a request."""
    async with within(30):
        while SUMMARY not in told(suite.llm.requests[-1]):
            assert not of_compaction(await suite.ask("short"))


def spent_between_runs() -> float:
    labels = {"moment": "between_runs", "kind": "input"}
    return REGISTRY.get_sample_value("headrace_compaction_tokens_total", labels) or 0.0


async def until_compacting(suite: Suite) -> None:
    async with within(10):
        while not suite.llm.aside_requests:
            await asyncio.sleep(0.01)


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
        suite.llm.models = []
        await fill(suite, 9)
        suite.llm.models = [SMALL]
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
        suite.llm.models = []
        await fill(suite, 9)
        suite.llm.models = [SMALL]
        assert (await suite.ask("go"))[-1]["type"] == "run.complete"
        await until_compacting(suite)
        events = await suite.ask("and on")
        assert types(events)[-1] == "run.complete"
        assert not of_compaction(events)
        assert len(suite.memory.compact_requests) == 1, "one at a time"


async def test_a_chat_past_its_cap_is_compacted_and_pays_for_one_summary_in_ten_runs(serve: Serve) -> None:
    async with serve(ANSWER, memory={"maxRuns": 10}) as suite:
        for number in range(25):
            before = len(suite.llm.aside_requests)
            assert not of_compaction(await suite.ask(f"{number}: {WORDS}"))
            if len(suite.llm.aside_requests) > before:
                async with within(10):
                    while suite.llm.open:
                        await asyncio.sleep(0.01)
        assert 1 <= len(suite.llm.aside_requests) <= 2
        await ask_until_summarised(suite)


@pytest.mark.parametrize("failure", ["", "unavailable"])
async def test_without_a_summary_nothing_leaves_the_window(serve: Serve, failure: str) -> None:
    async with serve(ANSWER) as suite:
        suite.llm.aside["compact"] = [Overloaded("no")] if failure else DONE
        suite.llm.models = []
        await fill(suite, 9)
        suite.llm.models = [SMALL]
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
