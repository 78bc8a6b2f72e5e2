"""Facts about the user: kept by one chat, recalled in the next, forgotten for good."""

import asyncio
import json
from typing import Any

import pytest

from headrace.v1 import memory_pb2
from services.orchestrator.lifecycle.after_run import read_facts
from services.runtime.clock import format_day, now_ms
from tests.support.orchestrator import Serve, Suite, ask, call_tool, content, finish, reminder, run_of, shown

ANSWER = content("Done.") + finish()
NAMES = {"remember", "recall", "forget"}


def use(name: str, **arguments: Any) -> Any:
    return call_tool(name, json.dumps(arguments))


def result_of(suite: Suite) -> dict[str, Any]:
    """The last tool result that the model was told."""
    told = [message for message in suite.llm.requests[-1].messages if message.role == "tool"]
    return json.loads(told[-1].content[0].text)


async def list_facts(suite: Suite) -> list[memory_pb2.Fact]:
    return list((await suite.memory.ListFacts(memory_pb2.ListFactsRequest(), None)).facts)


async def store(suite: Suite, text: str, **fields: Any) -> str:
    return (await suite.memory.Remember(memory_pb2.RememberRequest(text=text, **fields), None)).fact_id


@pytest.mark.parametrize("facts", ["off", "tools", "recall"])
async def test_tools_and_recall_are_the_agents_choice(serve: Serve, facts: str) -> None:
    async with serve(ANSWER, memory={"facts": facts}) as suite:
        await store(suite, "likes tea")
        await ask(suite, message="tea?")
        assert shown(suite) & NAMES == (set() if facts == "off" else NAMES)
        assert ("likes tea" in reminder(suite)) == (facts == "recall")


async def test_a_fact_is_kept_with_its_line_and_found_in_another_chat(serve: Serve) -> None:
    turns = [use("remember", fact="lives in Oslo", topic="home town"), ANSWER, use("recall", query="Oslo?"), ANSWER]
    async with serve(*turns, memory={"facts": "tools"}) as suite:
        events = await ask(suite, message="I live in Oslo")
        (fact,) = await list_facts(suite)
        assert result_of(suite) == {"ok": True, "factId": fact.fact_id}
        start = next(event for event in events if event["type"] == "run.start")
        assert (fact.source.chat_id, fact.source.run_id) == (start["chatId"], start["runId"])
        assert fact.source.n == 2  # the line of the call
        suite.chat_id = "5f0c0000-0000-4000-8000-000000000078"
        await ask(suite, message="where do I live?")
        found = result_of(suite)["facts"][0]
        assert (found["factId"], found["fact"], found["topic"]) == (fact.fact_id, "lives in Oslo", "home town")


async def test_a_fact_that_only_one_agent_needs_is_no_other_agents(serve: Serve) -> None:
    turns = [use("remember", fact="prefers short answers", onlyHere=True), ANSWER]
    async with serve(*turns, memory={"facts": "tools"}) as suite:
        await ask(suite)
        (fact,) = await list_facts(suite)
        assert (fact.scope, fact.agent_key) == ("agent", "react")


async def test_what_is_forgotten_is_recalled_no_more(serve: Serve) -> None:
    async with serve(memory={"facts": "recall"}) as suite:
        fact_id = await store(suite, "likes tea")
        suite.llm.turns += [use("forget", factId=fact_id), ANSWER, use("forget", factId="0" * 36), ANSWER]
        await ask(suite, message="forget that I like tea")
        assert result_of(suite) == {"ok": True}
        assert await list_facts(suite) == []
        await ask(suite, message="tea")
        assert result_of(suite)["error"] == "INVALID_REQUEST"
        assert "likes tea" not in reminder(suite)


async def test_what_is_recalled_says_since_when_it_is_known_and_a_newer_fact_takes_its_place(serve: Serve) -> None:
    async with serve(ANSWER, ANSWER, memory={"facts": "recall"}) as suite:
        await store(suite, "lives in Oslo", topic="home town")
        await store(suite, "lives in Rome", topic="Home-town")
        await ask(suite, message="Where do I live?")
        day = format_day(now_ms())
        assert f"\n- lives in Rome (since {day})" in reminder(suite)
        assert "where two contradict, the later one holds" in reminder(suite)
        assert "Oslo" not in reminder(suite)
        await ask(suite, message="How is the weather today?")
        assert "Notes about the user" not in reminder(suite)


async def test_only_so_many_tokens_of_facts_are_shown_the_best_first(serve: Serve) -> None:
    async with serve(ANSWER, memory={"facts": "recall", "factsTokens": 70}) as suite:
        for index in range(20):
            await store(suite, f"tea number {index} is something that the user likes very much")
        await store(suite, "the user's dog is called Rex")
        await ask(suite, message="what is my dog called, and do I like tea?")
        notes = [line for line in reminder(suite).splitlines() if line.startswith("- ")]
        assert notes[0].startswith("- the user's dog is called Rex (since ")
        assert 2 <= len(notes) <= 3
        assert not any(
            message.role == "system" and "Rex" in str(message) for message in suite.llm.requests[-1].messages
        )


TOLD = "Hello, I moved to Oslo  last week. What is the weather?"
FOUND = [
    {"fact": "lives in Oslo", "topic": "home town", "quote": "I moved to oslo last week"},
    {"fact": "is a doctor", "topic": "job", "quote": "I am a doctor"},
    {"fact": "likes rain", "quote": ""},
]


async def test_facts_are_extracted_after_a_run_with_the_line_that_proves_them(serve: Serve) -> None:
    async with serve(ANSWER, memory={"extract": "after_run"}) as suite:
        suite.llm.aside["facts"] = content("```json\n", json.dumps(FOUND), "\n```") + finish()
        events = await ask(suite, message=TOLD)
        async with asyncio.timeout(100):
            while not (facts := await list_facts(suite)):
                await asyncio.sleep(0.01)
        (fact,) = facts
        assert (fact.text, fact.topic, fact.source.n) == ("lives in Oslo", "home town", 1)
        assert fact.source.run_id == run_of(events)
        assert shown(suite) & NAMES == set()


@pytest.mark.parametrize(
    "answer", ["I'm sorry, I can't help with that.", "[]", '[{"fact": 7}]', "[" * 5000, '{"fact": "x"}', "", "] ["]
)
def test_a_refusal_or_nonsense_is_no_fact(answer: str) -> None:
    assert read_facts(answer, TOLD) == []


def test_a_fact_is_proved_by_words_of_the_message() -> None:
    assert [found.fact for found in read_facts(json.dumps(FOUND), TOLD)] == ["lives in Oslo"]
    assert read_facts(json.dumps([FOUND[0] | {"fact": " "}, FOUND[0] | {"fact": "x" * 501}]), TOLD) == []


@pytest.mark.parametrize(
    "bad", [{"fact": 7, "quote": "x"}, {"fact": "no quote"}, {"fact": "x", "quote": None}, "a text", None]
)
def test_a_bad_fact_costs_none_of_the_others(bad: object) -> None:
    assert [found.fact for found in read_facts(json.dumps([bad, *FOUND]), TOLD)] == ["lives in Oslo"]


@pytest.mark.parametrize(
    ("message", "quote"),
    [
        ("I'm vegetarian.", "I’m vegetarian"),
        ("I’m “only” vegetarian", 'I\'m "only" vegetarian'),
        ("Yes, I'm vegetarian and tired", '"…I\'m vegetarian..."'),
    ],
)
def test_a_quote_may_have_other_quotation_marks(message: str, quote: str) -> None:
    answer = json.dumps([{"fact": "is vegetarian", "topic": None, "quote": quote}])
    assert [found.fact for found in read_facts(answer, message)] == ["is vegetarian"]


async def test_nothing_is_extracted_unless_the_agent_asks_for_it(serve: Serve) -> None:
    async with serve(ANSWER, memory={"facts": "recall"}) as suite:
        suite.llm.aside["facts"] = content(json.dumps(FOUND)) + finish()
        await ask(suite, message=TOLD)
        assert not suite.llm.aside_requests
