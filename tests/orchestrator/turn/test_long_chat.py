"""A long chat with several compactions: receipts and usage of each match what the provider got."""

import asyncio

from headrace.v1 import agent_pb2
from tests.support.orchestrator import Serve, Suite, as_json
from tests.support.orchestrator.compaction import ANSWER, SMALL, WORDS, read_request_text
from tests.support.orchestrator.steps import answer
from tests.support.timing import within
from tests.support.waiting import wait_until

FIRST = " ".join(f"wish-{number}" for number in range(20))
"""A message of which every word must survive the compactions."""


async def ask_between(suite: Suite, number: int) -> list[str]:
    """Ask, and wait until no summary is being written; return the run's warnings."""
    before = len(suite.llm.aside_requests)
    events = await suite.ask(f"{number}: {WORDS}")
    warnings = [event["message"] for event in events if event.get("code") == "CHAT_NEARLY_FULL"]
    if any("after this answer" in warning for warning in warnings):
        async with within(30):
            await wait_until(lambda: len(suite.llm.aside_requests) > before and not suite.llm.open)
            await asyncio.sleep(0.2)  # Until the summary is committed.
    return warnings


async def list_compactions(suite: Suite) -> list[agent_pb2.AgentDelta]:
    events = (await suite.client.chat(suite.chat_id)).events
    return [event for event in events if (event.WhichOneof("payload") or "").startswith("compaction_")]


async def test_the_receipts_of_three_compactions_match_the_summarisers_requests(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        suite.llm.models = [SMALL]
        await suite.ask(FIRST)
        warnings: list[str] = []
        for number in range(40):
            warnings += await ask_between(suite, number)
            if len(suite.llm.aside_requests) >= 3:
                break
        async with within(30):
            while len(compactions := await list_compactions(suite)) < 3:
                await asyncio.sleep(0.01)
        context = await suite.client.context(suite.chat_id)
        assert FIRST in read_request_text(suite.llm.requests[-1])
    assert warnings[0].startswith("the chat is ")
    receipts = [event.compaction_complete.receipt for event in compactions]
    assert [event.seq for event in compactions] == [0, 0, 0]
    assert [receipt.first_line for receipt in receipts] == [1, 1, 1]
    assert sorted({receipt.last_line for receipt in receipts}) == [receipt.last_line for receipt in receipts]
    assert not any(receipt.unseen for receipt in receipts)
    assert all(receipt.seen_tokens == receipt.covered_tokens > 0 for receipt in receipts)
    assert sum(receipt.model_calls for receipt in receipts) == len(suite.llm.aside_requests) == 3
    assert context.between_runs_usage.input_tokens == sum(receipt.usage.input_tokens for receipt in receipts)
    assert context.chat_usage.model_calls == len(suite.llm.requests) + len(suite.llm.aside_requests)
    assert context.compaction.receipt == receipts[-1]
    assert all(request.max_tokens == 200 for request in suite.llm.aside_requests)


async def test_failed_summaries_are_in_the_chats_usage_and_history(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        suite.llm.models = [SMALL]
        suite.llm.aside["compact"] = answer("I'm sorry, I can't help with that.")
        for number in range(8):
            await ask_between(suite, number)
            if suite.llm.aside_requests:
                break
        async with within(30):
            while not (compactions := await list_compactions(suite)):
                await asyncio.sleep(0.01)
        context = await suite.client.context(suite.chat_id)
    assert [as_json(event)["reason"] for event in compactions] == ["INCOMPLETE_SUMMARY"]
    assert context.between_runs_usage.model_calls == len(suite.llm.aside_requests) == 2
    assert context.chat_usage.model_calls == len(suite.llm.requests) + 2
