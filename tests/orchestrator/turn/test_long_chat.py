"""A long chat with several compactions: what people and the books are told of each is what the provider saw."""

import asyncio

from headrace.v1 import agent_pb2
from tests.support.orchestrator import Serve, Suite, as_json
from tests.support.orchestrator.compaction import ANSWER, SMALL, WORDS, told
from tests.support.orchestrator.steps import answer
from tests.support.timing import within
from tests.support.waiting import wait_until

FIRST = " ".join(f"wish-{number}" for number in range(20))
"""All of it is known at the end."""


async def ask_between(suite: Suite, number: int) -> list[str]:
    """Ask, and wait until nothing is being summarised; the warnings of the run."""
    before = len(suite.llm.aside_requests)
    events = await suite.ask(f"{number}: {WORDS}")
    warnings = [event["message"] for event in events if event.get("code") == "CHAT_NEARLY_FULL"]
    if any("after this answer" in warning for warning in warnings):
        async with within(30):
            await wait_until(lambda: len(suite.llm.aside_requests) > before and not suite.llm.open)
            await asyncio.sleep(0.2)  # until it is committed
    return warnings


async def list_compactions(suite: Suite) -> list[agent_pb2.AgentDelta]:
    events = (await suite.client.chat(suite.chat_id)).events
    return [event for event in events if (event.WhichOneof("payload") or "").startswith("compaction_")]


async def test_the_receipts_of_three_compactions_add_up_with_what_was_seen(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        suite.llm.models = [SMALL]
        await suite.ask(FIRST)
        warnings: list[str] = []
        for number in range(40):
            warnings += await ask_between(suite, number)
            if len(suite.llm.aside_requests) >= 3:
                break
        async with within(30):
            while len(done := await list_compactions(suite)) < 3:
                await asyncio.sleep(0.01)
        context = await suite.client.context(suite.chat_id)
        assert FIRST in told(suite.llm.requests[-1])
    assert warnings[0].startswith("the chat is ")
    receipts = [event.compaction_complete.receipt for event in done]
    assert [event.seq for event in done] == [0, 0, 0]
    assert [receipt.first_line for receipt in receipts] == [1, 1, 1]
    assert sorted({receipt.last_line for receipt in receipts}) == [receipt.last_line for receipt in receipts]
    assert not any(receipt.unseen for receipt in receipts)
    assert all(receipt.seen_tokens == receipt.covered_tokens > 0 for receipt in receipts)
    assert sum(receipt.model_calls for receipt in receipts) == len(suite.llm.aside_requests) == 3
    assert context.between_runs_usage.input_tokens == sum(receipt.usage.input_tokens for receipt in receipts)
    assert context.chat_usage.model_calls == len(suite.llm.requests) + len(suite.llm.aside_requests)
    assert context.compaction.receipt == receipts[-1]
    assert all(request.max_tokens == 200 for request in suite.llm.aside_requests)


async def test_summaries_that_come_to_nothing_are_in_the_chats_usage_and_history(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        suite.llm.models = [SMALL]
        suite.llm.aside["compact"] = answer("I'm sorry, I can't help with that.")
        for number in range(8):
            await ask_between(suite, number)
            if suite.llm.aside_requests:
                break
        async with within(30):
            while not (done := await list_compactions(suite)):
                await asyncio.sleep(0.01)
        context = await suite.client.context(suite.chat_id)
    assert [as_json(event)["reason"] for event in done] == ["INCOMPLETE_SUMMARY"]
    assert context.between_runs_usage.model_calls == len(suite.llm.aside_requests) == 2
    assert context.chat_usage.model_calls == len(suite.llm.requests) + 2
