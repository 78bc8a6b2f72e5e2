"""A chat that outgrows its model's window, over HTTP and real processes, is compacted automatically and continues."""

import json

import pytest

from tests.support.order import Event, texts
from tests.support.pairing import assert_paired
from tests.support.suite import Suite
from tests.support.summaries import write_summary

pytestmark = pytest.mark.asyncio(loop_scope="session")

WORDS = "one two three four five six seven eight nine ten " * 15
SUMMARY = {"match": {"text": "about to be compacted"}, "steps": [{"content": [write_summary("Much was said.")]}]}
ANSWER = {"steps": [{"content": ["Go ", "on."]}]}
BROKEN = {"match": SUMMARY["match"], "steps": [{"status": 500}]}


def of_compaction(events: list[Event]) -> list[Event]:
    return [event for event in events if event["type"].startswith("compaction.")]


async def outgrow_window(suite: Suite) -> tuple[str, list[list[Event]]]:
    """Ask 14 long messages in one chat; return its id and the events of its runs."""
    chat_id, runs = "", list[list[Event]]()
    for number in range(14):
        events = await suite.ask(f"{number}: {WORDS}", "small", **({"chatId": chat_id} if chat_id else {}))
        assert events[-1]["type"] == "run.complete"
        assert texts(events, "content") == ["Go ", "on."]
        chat_id = events[0]["chatId"]
        runs.append(events)
    return chat_id, runs


async def test_a_chat_larger_than_its_models_window_continues(suite: Suite) -> None:
    suite.play(SUMMARY, ANSWER)
    chat_id, runs = await outgrow_window(suite)
    compaction_events = [event for events in runs for event in of_compaction(events)]
    # A compaction runs between runs, without events, or before a turn too large for the window, if that is earlier.
    # The one between runs may still finish first.
    failures = [event["reason"] for event in compaction_events if event["type"] == "compaction.fail"]
    assert set(failures) <= {"ALREADY_COMPACTED"}
    assert "compaction.fallback" not in [event["type"] for event in compaction_events]
    last = suite.requests()[-1]["messages"]
    assert "Much was said." in json.dumps(last)
    for request in suite.requests():
        assert_paired(request["messages"])
        assert len(json.dumps(request)) < 12_000, "no request is larger than the window"
    _, chat = await suite.get("/api/chat", chatId=chat_id)
    event_types = [
        event["type"] for event in chat["data"]["events"] if event["seq"]
    ]  # Without the events between runs.
    assert event_types.count("request.query") == 14, "people see the whole chat"
    assert [kind for kind in event_types if kind.startswith("compaction")] == [
        event["type"] for event in compaction_events
    ]


async def test_a_failing_summariser_does_not_block_the_chat(suite: Suite) -> None:
    suite.play(BROKEN, ANSWER)
    _, runs = await outgrow_window(suite)
    compaction_events = [event for events in runs for event in of_compaction(events)]
    assert [event["type"] for event in compaction_events[:2]] == ["compaction.start", "compaction.fallback"]


async def test_a_chat_is_compacted_by_hand_over_http(suite: Suite) -> None:
    suite.play(SUMMARY, ANSWER)
    chat_id = ""
    for number in range(4):
        events = await suite.ask(f"{number}: {WORDS}", "plain", **({"chatId": chat_id} if chat_id else {}))
        chat_id = events[0]["chatId"]
    events = await suite.compact(chat_id)
    kinds = [event["type"] for event in events]
    assert kinds == ["request.query", "run.start", "compaction.start", "compaction.complete", "run.complete"]
    again = await suite.ask("/compact", "plain", chatId=chat_id)
    assert of_compaction(again)[-1]["reason"] == "NOTHING_TO_COMPACT"
    status, refused = await suite.post("/api/compact", {"chatId": "5f0c0000-0000-4000-8000-000000000009"})
    assert status == 404, refused
