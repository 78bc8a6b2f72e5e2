"""Model calls next to the turns: a title after the first run, and the choice of an agent for agentKey `auto`."""

import asyncio

import pytest

from headrace.errors import Overloaded
from headrace.v1 import llm_pb2, memory_pb2
from services.orchestrator.lifecycle.after_run import read_title
from tests.support.orchestrator import ANSWER, Serve, Step, ask, ask_for, content, finish, only
from tests.support.orchestrator.runs import get_title, wait_for_title
from tests.support.orchestrator.suite import ONESHOT, write_agent
from tests.support.order import Event
from tests.support.waiting import until, wait_until

QUESTION = "Why does the wheel turn against the stream?"


def get_chat_id(events: list[dict[str, str]]) -> str:
    return next(event["chatId"] for event in events if event["type"] == "chat.start")


async def test_a_model_writes_a_title_once_after_the_first_run(serve: Serve) -> None:
    async with serve(ANSWER, ANSWER, chatTitle="model") as suite:
        suite.llm.aside["title"] = content("“Mill ", "wheels”.") + finish()
        chat_id = get_chat_id(await ask(suite, message=QUESTION))
        await wait_for_title(suite, chat_id, "Mill wheels")
        await ask(suite, message="And now?")
        (request,) = suite.llm.aside_requests
        assert request.messages[1].content[0].text == QUESTION


async def test_a_title_given_by_a_person_is_not_replaced(serve: Serve) -> None:
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
async def test_a_failed_or_unusable_title_leaves_the_first_words(serve: Serve, answer: list[Step]) -> None:
    async with serve(ANSWER, ANSWER, chatTitle="model") as suite:
        suite.llm.aside["title"] = answer
        chat_id = get_chat_id(await ask(suite, message=QUESTION))
        await wait_until(lambda: suite.llm.aside_requests)
        await wait_until(lambda: not suite.llm.open)
        await ask(suite, message="And now?")
        assert suite.memory.titles == []
        assert await get_title(suite, chat_id) == QUESTION


async def test_no_title_is_requested_unless_the_agent_enables_it(serve: Serve) -> None:
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
        ("Title: Mill wheels", "Mill wheels"),
        ("**Titel:** “Mühlräder”", "Mühlräder"),
        ("标题：《水车的方向》。", "水车的方向"),
        ("「水車」", "水車"),
        ("Here is a title for the conversation:\n\n**Mill wheels**", "Mill wheels"),
        ("Python: how lists are sorted", "Python: how lists are sorted"),
        ("Sure!\n\nThe wheel turns against the stream because the water drives its lower half, as you can see.", ""),
    ],
)
def test_a_title_is_read_without_quotes_and_markup(answer: str, title: str) -> None:
    assert read_title(answer) == title


def get_agent_key(events: list[Event]) -> str:
    return only(events, "run.start")["agentKey"]


@pytest.mark.parametrize(
    "router_answer", ["react", " `React`.\n", "**agentKey:** react", "I choose react, because it looks."]
)
async def test_the_router_picks_an_agent_by_description(serve: Serve, router_answer: str) -> None:
    async with serve(ANSWER, description="Looks things up") as suite:
        suite.llm.aside["router"] = content(*router_answer) + finish()
        events = await suite.ask("where is it?", agent="auto")
        (request,) = suite.llm.aside_requests
    assert get_agent_key(events) == "react"
    assert "- react: Looks things up" in request.messages[0].content[0].text
    assert request.messages[1].content[0].text == "where is it?"
    assert (events[-1]["usage"]["modelCalls"], events[-1]["usage"]["inputTokens"]) == (2, 20)


@pytest.mark.parametrize(
    "answer",
    [content("Either one.") + finish(), content("react or oneshot") + finish(), [Overloaded("busy")]],
    ids=["odd", "both", "away"],
)
async def test_without_a_usable_router_answer_the_default_agent_runs(serve: Serve, answer: list[Step]) -> None:
    async with serve(ANSWER) as suite:
        suite.llm.aside["router"] = answer
        events = await suite.ask(agent="auto")
    assert get_agent_key(events) == "oneshot"
    assert only(events, "run.notice")["code"] == "AGENT_NOT_PICKED"
    assert events[-1]["type"] == "run.complete"


@pytest.mark.parametrize(("limit_usd", "sent"), [(0.0001, []), (0.01, [1000]), (9.0, [8000])])
async def test_the_router_call_stays_within_the_lowest_budget_of_its_candidates(
    serve: Serve, limit_usd: float, sent: list[int]
) -> None:
    async with serve(ANSWER, budget={"maxCostUsd": limit_usd}) as suite:
        prices = llm_pb2.ModelInfo(model="m", input_usd_per_mtok_max=0, output_usd_per_mtok_max=10)
        prices.output_tokens_max = 8000
        suite.llm.models = [prices]
        suite.llm.aside["router"] = content("react") + finish()
        events = await suite.ask(agent="auto")
        assert [request.max_tokens for request in suite.llm.aside_requests] == sent
    assert get_agent_key(events) == ("react" if sent else "oneshot")


async def test_the_router_omits_hidden_agents_and_is_not_asked_for_a_single_candidate(serve: Serve) -> None:
    async with serve(ANSWER, tags=["hidden"]) as suite:
        suite.llm.aside["router"] = content("react") + finish()
        events = await suite.ask(agent="auto")
        assert suite.llm.aside_requests == []
        assert get_agent_key(events) == "oneshot"
        write_agent(suite.config.config_dir, "other", ONESHOT | {"description": "another"})
        await until(lambda: suite.client.agents("another"))
        events = await suite.ask(agent="auto")
        assert "react" not in suite.llm.aside_requests[0].messages[0].content[0].text
        assert get_agent_key(events) == "oneshot", "the router's answer is not a candidate"


async def test_a_repeated_query_asks_the_router_once(serve: Serve) -> None:
    slow = [*content("All "), 0.3, *content("good."), *finish()]
    async with serve(slow) as suite:
        suite.llm.aside["router"] = content("react") + finish()
        chat_id = "5f0c0000-0000-4000-8000-000000000078"
        async with asyncio.TaskGroup() as group:
            first = group.create_task(suite.ask(agent="auto", chat_id=chat_id, request_id="r"))
            await wait_until(lambda: suite.llm.requests)
            second = group.create_task(suite.ask(agent="auto", chat_id=chat_id, request_id="r"))
        assert len(suite.llm.aside_requests) == 1
        third = await ask_for(suite.client, agent_key="auto", chat_id=chat_id, request_id="r")  # The run has ended.
        assert len(suite.llm.aside_requests) == 1
    assert first.result()[-1]["runId"] == second.result()[-1]["runId"] == third[-1]["runId"]
