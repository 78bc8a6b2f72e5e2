"""Titles that a model writes after a chat's first run."""

from __future__ import annotations

import asyncio

import pytest

from headrace.errors import Overloaded
from headrace.v1 import memory_pb2
from services.orchestrator.turn.title_writer import read_title
from tests.support.orchestrator import Serve, Step, ask, content, finish
from tests.support.orchestrator.runs import get_title
from tests.support.waiting import wait_until

ANSWER = content("Done.") + finish()
QUESTION = "Why does the wheel turn against the stream?"


def get_chat_id(events: list[dict[str, str]]) -> str:
    return next(event["chatId"] for event in events if event["type"] == "chat.start")


async def test_a_model_writes_a_title_once_after_the_first_run(serve: Serve) -> None:
    async with serve(ANSWER, ANSWER, chatTitle="model") as suite:
        suite.llm.aside["title"] = content("“Mill ", "wheels”.") + finish()
        chat_id = get_chat_id(await ask(suite, message=QUESTION))
        async with asyncio.timeout(100):
            while await get_title(suite, chat_id) != "Mill wheels":
                await asyncio.sleep(0.01)
        await ask(suite, message="And now?")
        (request,) = suite.llm.aside_requests
        assert request.messages[1].content[0].text == QUESTION


async def test_a_title_that_a_person_has_given_stays(serve: Serve) -> None:
    async with serve(ANSWER, chatTitle="model") as suite:
        barrier = asyncio.Barrier(2)
        suite.llm.aside["title"] = [barrier, *content("Mill wheels"), *finish()]
        chat_id = get_chat_id(await ask(suite, message=QUESTION))
        await wait_until(lambda: suite.llm.aside_requests)
        await suite.memory.UpdateChat(memory_pb2.UpdateChatRequest(chat_id=chat_id, title="Mine"), None)
        await barrier.wait()
        await wait_until(lambda: len(suite.memory.titles) >= 2)
        assert await get_title(suite, chat_id) == "Mine"


@pytest.mark.parametrize("answer", [[Overloaded("no")], content("word " * 40) + finish(), content(" ") + finish()])
async def test_what_fails_leaves_the_first_words(serve: Serve, answer: list[Step]) -> None:
    async with serve(ANSWER, ANSWER, chatTitle="model") as suite:
        suite.llm.aside["title"] = answer
        chat_id = get_chat_id(await ask(suite, message=QUESTION))
        await wait_until(lambda: suite.llm.aside_requests)
        await wait_until(lambda: not suite.llm.open)
        await ask(suite, message="And now?")
        assert suite.memory.titles == []
        assert await get_title(suite, chat_id) == QUESTION


async def test_no_model_is_asked_unless_the_agent_says_so(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        suite.llm.aside["title"] = content("Mill wheels") + finish()
        chat_id = get_chat_id(await ask(suite, message=QUESTION))
        assert await get_title(suite, chat_id) == QUESTION
    assert not suite.llm.aside_requests


@pytest.mark.parametrize(
    ("answer", "title"),
    [
        ("**Mill wheels**", "Mill wheels"),
        ('"A"\n', "A"),
        ("# The mill", "The mill"),
        ("x" * 81, ""),
        ("“”", ""),
    ],
)
def test_a_title_is_read_without_what_is_around_it(answer: str, title: str) -> None:
    assert read_title(answer) == title
