"""Facts about the user: stored by one chat, recalled in the next, and forgotten for good."""

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


def call_with(name: str, **arguments: Any) -> Any:
    return call_tool(name, json.dumps(arguments))


def read_last_result(suite: Suite) -> dict[str, Any]:
    """Return the last tool result in the model's request."""
    results = [message for message in suite.llm.requests[-1].messages if message.role == "tool"]
    return json.loads(results[-1].content[0].text)


async def list_facts(suite: Suite) -> list[memory_pb2.Fact]:
    return list((await suite.memory.ListFacts(memory_pb2.ListFactsRequest(), None)).facts)


async def store(suite: Suite, text: str, **fields: Any) -> str:
    return (await suite.memory.Remember(memory_pb2.RememberRequest(text=text, **fields), None)).fact_id


@pytest.mark.parametrize("facts", ["off", "tools", "recall"])
async def test_the_agent_chooses_fact_tools_and_recall(serve: Serve, facts: str) -> None:
    async with serve(ANSWER, memory={"facts": facts}) as suite:
        await store(suite, "likes tea")
        await ask(suite, message="tea?")
        assert shown(suite) & NAMES == (set() if facts == "off" else NAMES)
        assert ("likes tea" in reminder(suite)) == (facts == "recall")


async def test_a_fact_is_stored_with_its_line_and_recalled_in_another_chat(serve: Serve) -> None:
    turns = [
        call_with("remember", fact="lives in Oslo", topic="home town"),
        ANSWER,
        call_with("recall", query="Oslo?"),
        ANSWER,
    ]
    async with serve(*turns, memory={"facts": "tools"}) as suite:
        events = await ask(suite, message="I live in Oslo")
        (fact,) = await list_facts(suite)
        assert read_last_result(suite) == {"ok": True, "factId": fact.fact_id}
        start = next(event for event in events if event["type"] == "run.start")
        assert (fact.source.chat_id, fact.source.run_id) == (start["chatId"], start["runId"])
        assert fact.source.n == 2  # the line of the call
        suite.chat_id = "5f0c0000-0000-4000-8000-000000000078"
        await ask(suite, message="where do I live?")
        fact_found = read_last_result(suite)["facts"][0]
        assert (fact_found["factId"], fact_found["fact"], fact_found["topic"]) == (
            fact.fact_id,
            "lives in Oslo",
            "home town",
        )


async def test_a_fact_with_only_here_is_scoped_to_its_agent(serve: Serve) -> None:
    turns = [call_with("remember", fact="prefers short answers", onlyHere=True), ANSWER]
    async with serve(*turns, memory={"facts": "tools"}) as suite:
        await ask(suite)
        (fact,) = await list_facts(suite)
        assert (fact.scope, fact.agent_key) == ("agent", "react")


async def test_a_forgotten_fact_is_no_longer_recalled(serve: Serve) -> None:
    async with serve(memory={"facts": "recall"}) as suite:
        fact_id = await store(suite, "likes tea")
        suite.llm.turns += [call_with("forget", factId=fact_id), ANSWER, call_with("forget", factId="0" * 36), ANSWER]
        await ask(suite, message="forget that I like tea")
        assert read_last_result(suite) == {"ok": True}
        assert await list_facts(suite) == []
        await ask(suite, message="tea")
        assert read_last_result(suite)["error"] == "INVALID_REQUEST"
        assert "likes tea" not in reminder(suite)


async def test_a_recalled_fact_has_its_date_and_replaces_older_ones_of_its_topic(serve: Serve) -> None:
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


async def test_recalled_facts_fit_the_token_limit_best_match_first(serve: Serve) -> None:
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


MESSAGE = "Hello, I moved to Oslo  last week. What is the weather?"
EXTRACTED = [
    {"fact": "lives in Oslo", "topic": "home town", "quote": "I moved to oslo last week"},
    {"fact": "is a doctor", "topic": "job", "quote": "I am a doctor"},
    {"fact": "likes rain", "quote": ""},
]


async def test_facts_extracted_after_a_run_name_their_source_line(serve: Serve) -> None:
    async with serve(ANSWER, memory={"extract": "after_run"}) as suite:
        suite.llm.aside["facts"] = content("```json\n", json.dumps(EXTRACTED), "\n```") + finish()
        events = await ask(suite, message=MESSAGE)
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
def test_a_refusal_or_nonsense_gives_no_fact(answer: str) -> None:
    assert read_facts(answer, MESSAGE) == []


def test_an_extracted_fact_must_quote_the_message() -> None:
    assert [found.fact for found in read_facts(json.dumps(EXTRACTED), MESSAGE)] == ["lives in Oslo"]
    assert read_facts(json.dumps([EXTRACTED[0] | {"fact": " "}, EXTRACTED[0] | {"fact": "x" * 501}]), MESSAGE) == []


@pytest.mark.parametrize(
    "bad", [{"fact": 7, "quote": "x"}, {"fact": "no quote"}, {"fact": "x", "quote": None}, "a text", None]
)
def test_a_bad_fact_costs_none_of_the_others(bad: object) -> None:
    assert [found.fact for found in read_facts(json.dumps([bad, *EXTRACTED]), MESSAGE)] == ["lives in Oslo"]


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
        suite.llm.aside["facts"] = content(json.dumps(EXTRACTED)) + finish()
        await ask(suite, message=MESSAGE)
        assert not suite.llm.aside_requests
