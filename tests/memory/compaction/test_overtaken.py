"""What happens to a chat while its summary is written: each change is taken, or the compaction is none."""

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
async def meanwhile(
    memory: Memory, chat_id: str, run_id: str, summariser: Summariser
) -> AsyncGenerator[asyncio.Task[Compacted]]:
    """Compact the chat; inside the block its summary is being written."""
    summariser.asked.clear()
    summariser.gate.clear()
    async with asyncio.timeout(200), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(compact(memory, chat_id, run_id))
        await summariser.asked.wait()
        yield task
        summariser.gate.set()


async def test_a_message_that_is_pinned_meanwhile_stands_behind_the_summary(
    memory: Memory, summariser: Summariser
) -> None:
    chat_id, run_id = await converse(memory)
    await compact(memory, chat_id, run_id)
    await memory.append(chat_id, run_id, *say_more(20))
    async with meanwhile(memory, chat_id, run_id, summariser) as task:
        await pin(memory, chat_id, 5)
    shown = text_of((await memory.context(chat_id, run_id))[0])
    assert task.result().kinds[-1] == "complete"
    assert shown.endswith(f"{PINNED}\n\nquestion 1")
    assert "Pinned by the user: line 5" in task.result().last.receipt.pinned


async def test_a_summary_that_is_edited_meanwhile_is_not_lost(memory: Memory, summariser: Summariser) -> None:
    summariser.answers = [SUMMARY, write_summary("The second.")]
    chat_id, run_id = await converse(memory)
    await compact(memory, chat_id, run_id)
    await memory.append(chat_id, run_id, *say_more(20))
    async with meanwhile(memory, chat_id, run_id, summariser) as task:
        await edit(memory, chat_id, (await summary(memory, chat_id)).n, "They spoke of boats.")
    shown = text_of((await memory.context(chat_id, run_id))[0])
    assert task.result().kinds[-1] == "complete"
    assert "The second." in shown
    assert "They spoke of boats." in shown


@pytest.mark.parametrize("answer", [SUMMARY, ""])
async def test_what_people_have_made_of_a_summary_is_what_the_next_one_begins_with(
    memory: Memory, summariser: Summariser, answer: str
) -> None:
    """Also when no summary comes."""
    summariser.answers = [SUMMARY, answer]
    chat_id, run_id = await converse(memory)
    await compact(memory, chat_id, run_id)
    await edit(memory, chat_id, (await summary(memory, chat_id)).n, "They spoke of boats.")
    await memory.append(chat_id, run_id, *say_more(20))
    done = await compact(memory, chat_id, run_id)
    shown = text_of((await memory.context(chat_id, run_id))[0])
    if answer:
        assert text_of(summariser.requests[-1].messages[0]) == "They spoke of boats."
    else:
        assert done.kinds[-1] == "fallback"
        assert "They spoke of boats." in shown
        assert "They spoke of the weather." not in shown


async def test_a_summary_of_what_is_reverted_meanwhile_is_none(memory: Memory, summariser: Summariser) -> None:
    chat_id, run_id = await converse(memory)
    await memory.append(chat_id, run_id, step_line(content("Yes.")), run_line())
    async with meanwhile(memory, chat_id, run_id, summariser) as task:
        await memory.revert(chat_id, 3)
    _, run_id = await memory.begin("and now", chat_id)
    shown = await list_texts(memory, chat_id, run_id)
    assert (task.result().kinds[-1], task.result().last.reason) == ("fail", "ALREADY_COMPACTED")
    assert (shown[0], shown[-1]) == ("question 0", "and now")


async def test_of_two_compactions_of_a_context_the_later_one_changes_nothing(
    memory: Memory, summariser: Summariser, folder: Path
) -> None:
    """One of a run, and the one of the chat that the run before it has begun."""
    chat_id, first = await converse(memory)
    await memory.append(chat_id, first, step_line(content("Yes.")), run_line())
    _, second = await memory.begin("and now", chat_id)
    async with meanwhile(memory, chat_id, first, summariser) as between:
        own = asyncio.create_task(compact(memory, chat_id, second))
        await wait_until(lambda: summariser.open == 2)
    await own
    done = {result.kinds[-1]: result.last for result in (own.result(), between.result())}
    assert sorted(done) == ["complete", "fail"]
    assert done["fail"].reason == "ALREADY_COMPACTED"
    assert lines_with(folder, chat_id, "compact_summary") == 1


@pytest.mark.parametrize("meanwhile_reverted", [False, True])
async def test_one_that_was_due_before_another_is_not_made(
    memory: Memory, summariser: Summariser, meanwhile_reverted: bool
) -> None:
    """The orchestrator reads files between a request that is too large and the compaction for it."""
    chat_id, first = await converse(memory)
    await memory.append(chat_id, first, step_line(content("Yes.")), run_line())
    _, second = await memory.begin("and now", chat_id)
    due = await memory.call("LoadContext", chat_id=chat_id, run_id=second)
    await compact(memory, chat_id, first, base=due.base)
    asked = len(summariser.requests)
    if meanwhile_reverted:
        await memory.append(chat_id, second, run_line())
        await memory.revert(chat_id, 3)
        _, second = await memory.begin("and then", chat_id)
    done = await compact(memory, chat_id, second, base=due.base)
    assert (done.kinds, done.last.reason) == (["start", "fail"], "ALREADY_COMPACTED")
    assert len(summariser.requests) == asked == 1
    now = await memory.call("LoadContext", chat_id=chat_id, run_id=second)
    again = await compact(memory, chat_id, second, base=now.base)
    assert "ALREADY_COMPACTED" not in str(again.last)


@needs_postgres
async def test_of_two_services_that_compact_a_chat_at_the_same_time_one_does(database_url: str) -> None:
    summariser = Summariser(SUMMARY)
    async with (
        serving_llm(summariser) as (llm, _),
        memory_in(database_url, tells=False, llm=llm) as one,
        memory_in(database_url, tells=False, llm=llm) as other,
    ):
        chat_id, run_id = await converse(one)
        for _ in range(3):
            await one.append(chat_id, run_id, *say_more(20))
            async with meanwhile(one, chat_id, run_id, summariser) as first:
                second = asyncio.create_task(compact(other, chat_id, run_id))
                await wait_until(lambda: summariser.open == 2)
            await second
            assert sorted([first.result().kinds[-1], second.result().kinds[-1]]) == ["complete", "fail"]


def lines_with(folder: Path, chat_id: str, kind: str) -> int:
    return (folder / f"{chat_id}.json").read_text().count(f'"_type":"{kind}"')
