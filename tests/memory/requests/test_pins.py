"""Pinned messages and edited summaries, and what models see of them in every later request."""

from pathlib import Path

import pytest

from headrace.errors import ChatBusy, NotFound, OutOfRange, StaleLease
from tests.support.memory.contexts import text_of
from tests.support.memory.messages import content
from tests.support.memory.pins import PINNED, edit, pin, summary
from tests.support.memory.summarising import LIMITS, SUMMARY, Summariser, compact, converse, summarising
from tests.support.memory.writing import Memory, new_id, query_line, run_line, step_line


async def list_pins(memory: Memory, chat_id: str) -> list[tuple[int, str]]:
    return [(item.n, item.text) for item in (await memory.call("ListPins", chat_id=chat_id)).pins]


@pytest.mark.engines
async def test_messages_are_pinned_and_unpinned(memory: Memory) -> None:
    chat_id, run_id, request_id = new_id(), new_id(), new_id()
    await memory.append(chat_id, run_id, query_line("My boat is Ada."), step_line(content("Fine.")), run_line())
    assert (await summary(memory, chat_id)).n == 0
    n = await pin(memory, chat_id, 1, request_id=request_id)
    assert await pin(memory, chat_id, 1, request_id=request_id) == n == 4
    assert await pin(memory, chat_id, 1) == 0, "it is pinned already"
    await pin(memory, chat_id, 2)
    assert await list_pins(memory, chat_id) == [(1, "My boat is Ada."), (2, "Fine.")]
    listed = (await memory.call("ListPins", chat_id=chat_id)).pins
    assert [(item.run_id, item.role) for item in listed] == [(run_id, "user"), (run_id, "assistant")]
    fork = await memory.fork(chat_id)
    assert await list_pins(memory, fork) == await list_pins(memory, chat_id), "a fork carries them"
    assert await pin(memory, chat_id, 1, remove=True) == 6
    assert await list_pins(memory, chat_id) == [(2, "Fine.")]
    await memory.append(chat_id, new_id(), query_line("/compact with care"))
    for wrong in (0, 3, 7, 99):
        with pytest.raises(NotFound):
            await pin(memory, chat_id, wrong)
    with pytest.raises(NotFound):
        await list_pins(memory, new_id())
    with pytest.raises(StaleLease):
        await edit(memory, chat_id, 1, "x")


@pytest.mark.engines
async def test_pinned_text_has_a_maximum_length(memory: Memory) -> None:
    chat_id = new_id()
    for _ in range(2):
        await memory.append(chat_id, new_id(), query_line("x" * 5000), run_line())
    await pin(memory, chat_id, 1)
    with pytest.raises(OutOfRange, match="10,000 characters"):
        await pin(memory, chat_id, 3)


async def test_a_pinned_message_survives_every_compaction_verbatim(folder: Path) -> None:
    async with summarising(folder, Summariser(SUMMARY)) as memory:
        chat_id, run_id = await converse(memory)
        await pin(memory, chat_id, 5)
        assert PINNED not in text_of((await memory.context(chat_id, run_id))[0]), "it stands in its own place"
        await compact(memory, chat_id, run_id)
        first = await memory.context(chat_id, run_id, system="You are")
        await memory.append(chat_id, run_id, *(step_line(content("word " * 600)) for _ in range(10)))
        await compact(memory, chat_id, run_id)
        second = await memory.context(chat_id, run_id, system="You are")
        await pin(memory, chat_id, 5, remove=True)
        unpinned = await memory.context(chat_id, run_id, system="You are")
    for messages in (first, second):
        assert text_of(messages[1]).endswith(f"{PINNED}\n\nquestion 1")
    assert PINNED not in text_of(unpinned[1])
    assert unpinned[2:] == second[2:]


async def test_an_edited_summary_is_sent_and_the_original_stays_in_the_log(folder: Path) -> None:
    async with summarising(folder, Summariser(SUMMARY)) as memory:
        chat_id, run_id = await converse(memory)
        await compact(memory, chat_id, run_id)
        before = await summary(memory, chat_id)
        n = await edit(memory, chat_id, before.n, "They spoke of boats.")
        assert ((await summary(memory, chat_id)).text, (await summary(memory, chat_id)).edited_n) == (
            "They spoke of boats.", n,
        )  # fmt: skip
        with pytest.raises(StaleLease):
            await edit(memory, chat_id, before.n - 1, "x")
        messages = await memory.context(chat_id, run_id, system="You are", limits=LIMITS)
        assert text_of(messages[1]) == "They spoke of boats."
    async with summarising(folder, Summariser(SUMMARY)) as memory:
        assert await memory.context(chat_id, run_id, system="You are", limits=LIMITS) == messages
        with pytest.raises(ChatBusy):
            await memory.revert(chat_id, 0)
    assert "They spoke of the weather." in (folder / f"{chat_id}.json").read_text()


@pytest.mark.engines
async def test_a_rollback_does_not_undo_pins_of_messages_that_stay(memory: Memory) -> None:
    """Found by seed 739 of trials/simulation: a pin that was removed while a run waited reappeared."""
    chat_id = new_id()
    for text in ("My boat is Ada.", "It is blue.", "It is in the harbour."):
        await memory.append(chat_id, new_id(), query_line(text), run_line())
    await pin(memory, chat_id, 1)
    run_id = new_id()
    await memory.append(chat_id, run_id, query_line("Where is it?"))
    await pin(memory, chat_id, 1, remove=True)
    await pin(memory, chat_id, 3)
    await pin(memory, chat_id, 8)
    await memory.append(chat_id, run_id, run_line())
    await memory.revert(chat_id, 3, scope="model")
    assert await list_pins(memory, chat_id) == [(3, "It is blue.")]
    await memory.append(chat_id, new_id(), query_line("And now?"), run_line())
    await memory.revert(chat_id, 2, scope="model")
    assert await list_pins(memory, chat_id) == [(3, "It is blue.")]
    await memory.revert(chat_id, 0, scope="model")
    assert await list_pins(memory, chat_id) == []


async def test_a_rollback_does_not_undo_an_edit_of_a_summary_that_stays(folder: Path) -> None:
    async with summarising(folder, Summariser(SUMMARY)) as memory:
        chat_id, run_id = await converse(memory)
        await compact(memory, chat_id, run_id)
        await memory.append(chat_id, run_id, run_line())
        later = new_id()
        await memory.append(chat_id, later, query_line("one more"))
        await edit(memory, chat_id, (await summary(memory, chat_id)).n, "They spoke of boats.")
        await memory.append(chat_id, later, run_line())
        before = (await memory.checkpoints(chat_id)).checkpoints[0]
        await memory.revert(chat_id, before.checkpoint_id, scope="model")
        assert (await summary(memory, chat_id)).text == "They spoke of boats."
