"""Titles of chats: first words, titles that users set, and where both are shown."""

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
    """Return name and title from each response that shows the chat."""
    listed = next(chat for chat in (await memory.chats()).chats if chat.chat_id == chat_id)
    whole, brief = await memory.chat(chat_id=chat_id), await memory.chat(chat_id=chat_id, without_events=True)
    return [(response.chat_name, response.title) for response in (listed, whole, brief)]


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
async def test_the_name_and_title_of_a_new_chat_are_the_first_words_of_its_query(
    serve: Serve, question: str, title: str
) -> None:
    async with serve() as memory:
        chat_id = await make_chat(memory, question)
        assert {*await list_titles(memory, chat_id)} == {(title, title)}
    async with serve() as memory:
        assert {*await list_titles(memory, chat_id)} == {(title, title)}


@pytest.mark.engines
async def test_a_chat_gets_a_title_and_keeps_its_name(serve: Serve) -> None:
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
async def test_if_untitled_does_not_replace_an_existing_title(memory: Memory) -> None:
    chat_id = await make_chat(memory, QUESTION)
    assert (await update(memory, chat_id, "of a model", if_untitled=True)).n == 4
    assert (await update(memory, chat_id, "of another", if_untitled=True)) == memory_pb2.UpdateChatResponse(
        title="of a model"
    )
    await update(memory, chat_id, "")
    assert (await update(memory, chat_id, "again", if_untitled=True)).title == FIRST_WORDS, "a person wants none"


@pytest.mark.engines
async def test_a_generated_title_never_replaces_one_a_user_sets_at_the_same_time(memory: Memory) -> None:
    for _ in range(8):
        chat_id = await make_chat(memory, QUESTION)
        _, *model_replies = await asyncio.gather(
            update(memory, chat_id, "of a person"),
            *(update(memory, chat_id, f"of model {n}", if_untitled=True) for n in range(3)),
        )
        assert {names_[1] for names_ in await list_titles(memory, chat_id)} == {"of a person"}
        assert sum(answer.n > 0 for answer in model_replies) <= 1
        assert all(answer.title for answer in model_replies)


@pytest.mark.engines
async def test_a_chat_is_found_by_its_current_title_only(serve: Serve) -> None:
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
async def test_invalid_titles_are_rejected(memory: Memory) -> None:
    with pytest.raises(NotFound):
        await update(memory, new_id(), "x")
    with pytest.raises(InvalidRequest):
        await update(memory, await make_chat(memory, "x"), "x" * 401)


async def test_a_chat_can_be_renamed_during_a_run(memory: Memory) -> None:
    chat_id, run_id = new_id(), new_id()
    await memory.append(chat_id, run_id, query_line("hello"))
    assert (await update(memory, chat_id, "Greetings")).n == 2
    await memory.append(chat_id, run_id, step_line(content("Hi.")), run_line())
    assert (await memory.chat(chat_id=chat_id)).title == "Greetings"
