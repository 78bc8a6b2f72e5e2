"""A reader that stands still while a model says 20,000 words is told every one, though most come as a snapshot."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

from headrace.event_json import parse_event
from headrace.run_stream import RunStream
from headrace.v1 import agent_pb2
from services.orchestrator.run.events.feed import Feed
from tests.orchestrator.run.test_feed import Ear, answering, begin, end, following, say

WORDS = [f"word-{number:05} " for number in range(20_000)]
HEARD_AT_ONCE = 1970


async def play(ear: Ear) -> AsyncIterator[agent_pb2.AgentDelta]:
    for event in ear.heard:
        yield parse_event(json.dumps(event))


async def test_a_reader_that_lags_is_told_every_word() -> None:
    feed, ear = Feed(), Ear()
    async with following(feed, ear) as reading:
        begin(feed)
        answer = answering(feed)
        say(answer, *WORDS[:HEARD_AT_ONCE])
        ear.room.clear()
        say(answer, *WORDS[HEARD_AT_ONCE:])
        answer.close()
        end(feed)
        ear.room.set()
        await reading[0]
    run = RunStream(play(ear))
    told = [piece async for piece in run.text()]
    assert "".join(told) == run.state.answer == "".join(WORDS)
    deltas = [event["delta"] for event in ear.heard if event["type"] == "content.delta"]
    assert len(deltas) == HEARD_AT_ONCE + 1, "the rest came in the place of deltas"
