"""Titles of chats: their first words, what they are given, and where both are seen."""

import asyncio
from typing import Any

import pytest

from headrace.errors import InvalidRequest, NotFound
from headrace.v1 import memory_pb2
from tests.support.memory.engines import Serve
from tests.support.memory.messages import content
from tests.support.memory.writing import Memory, new_id, query_line, run_line, step_line

QUESTION = "Why does the   wheel of the old\nwater mill turn against the stream, and who has built it?"
FIRST_WORDS = "Why does the wheel of the old water mill turn against the"


async def make_chat(memory: Memory, question: str) -> str:
    chat_id = new_id()
    await memory.append(chat_id, new_id(), query_line(question), step_line(content("It does not.")), run_line())
    return chat_id


async def update(memory: Memory, chat_id: str, title: str, **fields: Any) -> memory_pb2.UpdateChatResponse:
    return await memory.call("UpdateChat", chat_id=chat_id, title=title, **fields)


async def list_titles(memory: Memory, chat_id: str) -> list[tuple[str, str]]:
    """Name and title, everywhere that a chat is shown."""
    listed = next(chat for chat in (await memory.chats()).chats if chat.chat_id == chat_id)
    whole, brief = await memory.chat(chat_id=chat_id), await memory.chat(chat_id=chat_id, without_events=True)
    return [(shown.chat_name, shown.title) for shown in (listed, whole, brief)]


@pytest.mark.engines
@pytest.mark.parametrize(
    ("question", "title"),
    [
        (QUESTION, FIRST_WORDS),
        (" \n\t ", "New chat"),
        ("short", "short"),
        ("x" * 60, "x" * 60),
        ("x" * 60 + " y", "x" * 60),
        ("x" * 61, "x" * 60),
        ("水车 " + "怎" * 80, "水车 " + "怎" * 57),
        ("a\0b\x1b[31mc", "a b [31mc"),
        (" " * 2000 + "late", "late"),
    ],
)
async def test_name_and_title_are_the_first_words(serve: Serve, question: str, title: str) -> None:
    async with serve() as memory:
        chat_id = await make_chat(memory, question)
        assert {*await list_titles(memory, chat_id)} == {(title, title)}
    async with serve() as memory:
        assert {*await list_titles(memory, chat_id)} == {(title, title)}


@pytest.mark.engines
async def test_a_chat_is_given_a_title_and_keeps_its_name(serve: Serve) -> None:
    request_id = new_id()
    async with serve() as memory:
        chat_id = await make_chat(memory, QUESTION)
        first = await update(memory, chat_id, " The\nmill ", request_id=request_id)
        assert (first.n, first.title) == (4, "The mill")
        assert await update(memory, chat_id, "other", request_id=request_id) == first, "it is a repetition"
        assert await list_titles(memory, chat_id) == [(FIRST_WORDS, "The mill")] * 3
        assert await update(memory, chat_id, "The mill") == memory_pb2.UpdateChatResponse(title="The mill")
        await memory.append(chat_id, new_id(), query_line("And now?"), run_line())
        await memory.revert(chat_id, 0)
        assert await list_titles(memory, chat_id) == [(FIRST_WORDS, "The mill")] * 3, "no revert takes it back"
    async with serve() as memory:
        assert await list_titles(memory, chat_id) == [(FIRST_WORDS, "The mill")] * 3
        assert await list_titles(memory, await memory.fork(chat_id)) == [(FIRST_WORDS, "The mill")] * 3
        assert (await update(memory, chat_id, "")).title == FIRST_WORDS
        assert await list_titles(memory, chat_id) == [(FIRST_WORDS, FIRST_WORDS)] * 3


@pytest.mark.engines
async def test_what_has_a_title_keeps_it_where_that_is_asked(memory: Memory) -> None:
    chat_id = await make_chat(memory, QUESTION)
    assert (await update(memory, chat_id, "of a model", if_untitled=True)).n == 4
    assert (await update(memory, chat_id, "of another", if_untitled=True)) == memory_pb2.UpdateChatResponse(
        title="of a model"
    )
    await update(memory, chat_id, "")
    assert (await update(memory, chat_id, "again", if_untitled=True)).title == FIRST_WORDS, "a person wants none"


@pytest.mark.engines
async def test_a_title_for_want_of_one_never_replaces_what_a_person_writes_at_the_same_time(memory: Memory) -> None:
    for _ in range(8):
        chat_id = await make_chat(memory, QUESTION)
        _, *models = await asyncio.gather(
            update(memory, chat_id, "of a person"),
            *(update(memory, chat_id, f"of model {n}", if_untitled=True) for n in range(3)),
        )
        assert {shown[1] for shown in await list_titles(memory, chat_id)} == {"of a person"}
        assert sum(answer.n > 0 for answer in models) <= 1
        assert all(answer.title for answer in models)


@pytest.mark.engines
async def test_titles_are_found_until_they_change(serve: Serve) -> None:
    async with serve() as memory:
        chat_id = await make_chat(memory, QUESTION)
        await make_chat(memory, "nothing of the kind")
        await update(memory, chat_id, "Granite and flour")
        hit = (await memory.search("granite", "chats"))[0]
        assert (hit.chat_id, hit.title, hit.run_id, hit.excerpt) == (
            chat_id,
            "Granite and flour",
            "",
            "Granite and flour",
        )
        await update(memory, chat_id, "Quartz")
    async with serve() as memory:
        assert [hit.chat_id for hit in await memory.search("quartz")] == [chat_id]
        assert await memory.search("granite") == []
        assert [(hit.title, bool(hit.run_id)) for hit in await memory.search("against")] == [("Quartz", True)]


@pytest.mark.engines
async def test_wrong_titles_are_refused(memory: Memory) -> None:
    with pytest.raises(NotFound):
        await update(memory, new_id(), "x")
    with pytest.raises(InvalidRequest):
        await update(memory, await make_chat(memory, "x"), "x" * 401)


async def test_a_run_goes_on_while_its_chat_is_renamed(memory: Memory) -> None:
    chat_id, run_id = new_id(), new_id()
    await memory.append(chat_id, run_id, query_line("hello"))
    assert (await update(memory, chat_id, "Greetings")).n == 2
    await memory.append(chat_id, run_id, step_line(content("Hi.")), run_line())
    assert (await memory.chat(chat_id=chat_id)).title == "Greetings"
