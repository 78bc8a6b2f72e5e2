"""Changes to a chat while its summary is being written: each one is respected, or the compaction is discarded."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.memory.contexts import list_texts, text_of
from tests.support.memory.messages import content
from tests.support.memory.pins import PINNED, edit, pin, summary
from tests.support.memory.serving import memory_in
from tests.support.memory.summarising import SUMMARY, Compacted, Summariser, compact, converse, say_more, serving_llm
from tests.support.memory.writing import Memory, run_line, step_line
from tests.support.postgresql import needs_postgres
from tests.support.summaries import write_summary
from tests.support.waiting import wait_until


@asynccontextmanager
async def compacting(
    memory: Memory, chat_id: str, run_id: str, summariser: Summariser
) -> AsyncGenerator[asyncio.Task[Compacted]]:
    """Compact the chat; the summary is still being written when the block starts."""
    summariser.asked.clear()
    summariser.gate.clear()
    async with asyncio.timeout(200), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(compact(memory, chat_id, run_id))
        await summariser.asked.wait()
        yield task
        summariser.gate.set()


async def test_a_message_pinned_during_compaction_follows_the_summary(memory: Memory, summariser: Summariser) -> None:
    chat_id, run_id = await converse(memory)
    await compact(memory, chat_id, run_id)
    await memory.append(chat_id, run_id, *say_more(20))
    async with compacting(memory, chat_id, run_id, summariser) as task:
        await pin(memory, chat_id, 5)
    text = text_of((await memory.context(chat_id, run_id))[0])
    assert task.result().kinds[-1] == "complete"
    assert text.endswith(f"{PINNED}\n\nquestion 1")
    assert "Pinned by the user: line 5" in task.result().last.receipt.pinned


async def test_an_edit_of_the_summary_during_compaction_is_not_lost(memory: Memory, summariser: Summariser) -> None:
    summariser.answers = [SUMMARY, write_summary("The second.")]
    chat_id, run_id = await converse(memory)
    await compact(memory, chat_id, run_id)
    await memory.append(chat_id, run_id, *say_more(20))
    async with compacting(memory, chat_id, run_id, summariser) as task:
        await edit(memory, chat_id, (await summary(memory, chat_id)).n, "They spoke of boats.")
    text = text_of((await memory.context(chat_id, run_id))[0])
    assert task.result().kinds[-1] == "complete"
    assert "The second." in text
    assert "They spoke of boats." in text


@pytest.mark.parametrize("answer", [SUMMARY, ""])
async def test_the_next_summary_starts_from_the_edited_one(memory: Memory, summariser: Summariser, answer: str) -> None:
    """This also holds if the next summary fails."""
    summariser.answers = [SUMMARY, answer]
    chat_id, run_id = await converse(memory)
    await compact(memory, chat_id, run_id)
    await edit(memory, chat_id, (await summary(memory, chat_id)).n, "They spoke of boats.")
    await memory.append(chat_id, run_id, *say_more(20))
    compaction = await compact(memory, chat_id, run_id)
    text = text_of((await memory.context(chat_id, run_id))[0])
    if answer:
        assert text_of(summariser.requests[-1].messages[0]) == "They spoke of boats."
    else:
        assert compaction.kinds[-1] == "fallback"
        assert "They spoke of boats." in text
        assert "They spoke of the weather." not in text


async def test_a_compaction_is_discarded_if_its_messages_are_reverted_meanwhile(
    memory: Memory, summariser: Summariser
) -> None:
    chat_id, run_id = await converse(memory)
    await memory.append(chat_id, run_id, step_line(content("Yes.")), run_line())
    async with compacting(memory, chat_id, run_id, summariser) as task:
        await memory.revert(chat_id, 3)
    _, run_id = await memory.begin("and now", chat_id)
    texts = await list_texts(memory, chat_id, run_id)
    assert (task.result().kinds[-1], task.result().last.reason) == ("fail", "ALREADY_COMPACTED")
    assert (texts[0], texts[-1]) == ("question 0", "and now")


async def test_the_later_of_two_compactions_of_a_context_is_discarded(
    memory: Memory, summariser: Summariser, folder: Path
) -> None:
    """One belongs to a run, the other to the chat, started by the run before it."""
    chat_id, first = await converse(memory)
    await memory.append(chat_id, first, step_line(content("Yes.")), run_line())
    _, second = await memory.begin("and now", chat_id)
    async with compacting(memory, chat_id, first, summariser) as between:
        own = asyncio.create_task(compact(memory, chat_id, second))
        await wait_until(lambda: summariser.open == 2)
    await own
    results = {result.kinds[-1]: result.last for result in (own.result(), between.result())}
    assert sorted(results) == ["complete", "fail"]
    assert results["fail"].reason == "ALREADY_COMPACTED"
    assert count_lines(folder, chat_id, "compact_summary") == 1


@pytest.mark.parametrize("meanwhile_reverted", [False, True])
async def test_a_compaction_based_on_an_outdated_context_is_discarded(
    memory: Memory, summariser: Summariser, meanwhile_reverted: bool
) -> None:
    """The orchestrator reads files between the request that is too large and its compaction."""
    chat_id, first = await converse(memory)
    await memory.append(chat_id, first, step_line(content("Yes.")), run_line())
    _, second = await memory.begin("and now", chat_id)
    due = await memory.call("LoadContext", chat_id=chat_id, run_id=second)
    await compact(memory, chat_id, first, base=due.base)
    request_count = len(summariser.requests)
    if meanwhile_reverted:
        await memory.append(chat_id, second, run_line())
        await memory.revert(chat_id, 3)
        _, second = await memory.begin("and then", chat_id)
    compaction = await compact(memory, chat_id, second, base=due.base)
    assert (compaction.kinds, compaction.last.reason) == (["start", "fail"], "ALREADY_COMPACTED")
    assert len(summariser.requests) == request_count == 1
    now = await memory.call("LoadContext", chat_id=chat_id, run_id=second)
    again = await compact(memory, chat_id, second, base=now.base)
    assert "ALREADY_COMPACTED" not in str(again.last)


@needs_postgres
async def test_only_one_of_two_services_compacting_a_chat_at_once_succeeds(database_url: str) -> None:
    summariser = Summariser(SUMMARY)
    async with (
        serving_llm(summariser) as (llm, _),
        memory_in(database_url, tells=False, llm=llm) as first_memory,
        memory_in(database_url, tells=False, llm=llm) as second_memory,
    ):
        chat_id, run_id = await converse(first_memory)
        for _ in range(3):
            await first_memory.append(chat_id, run_id, *say_more(20))
            async with compacting(first_memory, chat_id, run_id, summariser) as first:
                second = asyncio.create_task(compact(second_memory, chat_id, run_id))
                await wait_until(lambda: summariser.open == 2)
            await second
            assert sorted([first.result().kinds[-1], second.result().kinds[-1]]) == ["complete", "fail"]


def count_lines(folder: Path, chat_id: str, kind: str) -> int:
    return (folder / f"{chat_id}.json").read_text().count(f'"_type":"{kind}"')
