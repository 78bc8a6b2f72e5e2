"""How long a summary may take: any time while output arrives, within the limit for all calls together."""

from pathlib import Path

import pytest

from headrace.errors import Overloaded
from services.memory.compaction.summary_requests import SUMMARY_TOKENS_MAX
from services.memory.compaction.summary_writer import SILENCE_S
from tests.support.memory.contexts import limits, text_of
from tests.support.memory.summarising import SUMMARY, Slow, Summariser, compact, converse, summarising


@pytest.mark.parametrize("seconds", [41, 300])
async def test_a_slow_summary_is_accepted_while_output_keeps_arriving(folder: Path, seconds: int) -> None:
    async with summarising(folder, Summariser(Slow(SUMMARY, seconds))) as memory:
        chat_id, run_id = await converse(memory)
        compaction = await compact(memory, chat_id, run_id)
        text = text_of((await memory.context(chat_id, run_id))[0])
    assert compaction.kinds[-1] == "complete", compaction.last
    assert "They spoke of the weather." in text


async def test_many_slow_chunks_are_accepted_too(folder: Path) -> None:
    small = limits(2_000, 400, "gpt-4o-mini", "q")
    async with summarising(folder, Summariser(Slow(SUMMARY, 41)), chat_k=1000) as memory:
        chat_id, run_id = await converse(memory, 40)
        compaction = await compact(memory, chat_id, run_id, summary_model=small)
    assert compaction.kinds[-1] == "complete", compaction.last
    assert compaction.last.receipt.model_calls > 4


async def test_a_summary_that_falls_silent_times_out(folder: Path) -> None:
    async with summarising(folder, Summariser(SILENCE_S + 30)) as memory:
        chat_id, run_id = await converse(memory)
        compaction = await compact(memory, chat_id, run_id)
    assert (compaction.kinds[-1], compaction.last.reason) == ("fallback", "TIMEOUT")


async def test_all_summary_calls_together_have_a_time_limit(folder: Path) -> None:
    async with summarising(folder, Summariser(Slow(SUMMARY, 60)), summary_timeout_s=50) as memory:
        chat_id, run_id = await converse(memory)
        compaction = await compact(memory, chat_id, run_id)
    assert (compaction.kinds[-1], compaction.last.reason) == ("fallback", "TIMEOUT")
    assert compaction.usage[0].estimated
    assert compaction.usage[0].output_tokens > 10, "what had come is paid for"


async def test_a_summary_whose_stream_fails_is_discarded(folder: Path) -> None:
    async with summarising(folder, Summariser(Slow(SUMMARY, 41, Overloaded("no")))) as memory:
        chat_id, run_id = await converse(memory)
        compaction = await compact(memory, chat_id, run_id)
    assert (compaction.kinds[-1], compaction.last.reason) == ("fallback", "OVERLOADED")


@pytest.mark.parametrize(("output", "most"), [(1_000, 1_000), (64_000, SUMMARY_TOKENS_MAX)])
async def test_a_request_limits_the_tokens_of_the_summary(folder: Path, output: int, most: int) -> None:
    summariser = Summariser("no summary", SUMMARY)
    async with summarising(folder, summariser) as memory:
        chat_id, run_id = await converse(memory)
        await compact(memory, chat_id, run_id, limits=limits(200_000, output, "gpt-4o"))
    assert [request.max_tokens for request in summariser.requests] == [most, most]
