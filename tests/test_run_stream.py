"""A run's stream as its readers see it: each word once, whatever is repeated, and the answers of the fold cases."""

import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace.event_json import parse_event
from headrace.run_stream import RunStream
from headrace.v1 import agent_pb2
from tests.support.folds import describe_fold

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "fold_cases.json").read_text())


async def play(deltas: Sequence[agent_pb2.AgentDelta]) -> AsyncIterator[agent_pb2.AgentDelta]:
    for delta in deltas:
        yield delta


def start(block: str, **fields: Any) -> agent_pb2.AgentDelta:
    return agent_pb2.AgentDelta(content_start=agent_pb2.ContentStart(content_id=block, **fields))


def say(block: str, text: str) -> agent_pb2.AgentDelta:
    return agent_pb2.AgentDelta(content_delta=agent_pb2.ContentDelta(content_id=block, delta=text))


def recall(block: str, text: str) -> agent_pb2.AgentDelta:
    return agent_pb2.AgentDelta(content_snapshot=agent_pb2.ContentSnapshot(content_id=block, text=text))


async def read_pieces(*deltas: agent_pb2.AgentDelta) -> list[str]:
    return [piece async for piece in RunStream(play(deltas)).text()]


async def test_each_piece_is_told_as_it_comes() -> None:
    assert await read_pieces(start("a"), say("a", "\n"), say("a", "two "), say("a", "")) == ["\n", "two "]


async def test_what_is_repeated_is_told_once() -> None:
    begun = [start("a"), say("a", "one "), say("a", "two ")]
    assert await read_pieces(*begun, recall("a", "one two three")) == ["one ", "two ", "three"]
    assert await read_pieces(*begun, start("a"), say("a", "one two thr"), say("a", "ee")) == [
        "one ", "two ", "thr", "ee"
    ]  # fmt: skip
    assert await read_pieces(*begun, start("a"), say("a", "one"), say("a", " two three")) == ["one ", "two ", "three"]
    assert await read_pieces(recall("a", "one"), recall("b", "two")) == ["one", "\n\ntwo"]


async def test_a_lost_block_is_told_whole_when_another_comes_under_its_id() -> None:
    lost = agent_pb2.AgentDelta(seq=3, attempt_reset=agent_pb2.AttemptReset(from_seq=0))
    begun = [start("a"), say("a", "one")]
    begun[0].seq = 1
    assert await read_pieces(*begun, lost, start("a"), say("a", "uno"), say("a", " due")) == ["one", "uno", " due"]


async def test_who_stops_reading_reads_on_where_they_were() -> None:
    run = RunStream(play([start("a"), say("a", "one "), say("a", "two "), recall("a", "one two three")]))
    async for piece in run.text():
        assert piece == "one "
        break
    assert [piece async for piece in run.text()] == ["two ", "three"]


async def test_words_of_a_block_that_began_before_are_told() -> None:
    run = RunStream(play([start("a"), say("a", "one "), say("a", "two")]))
    await anext(run)
    assert [piece async for piece in run.text()] == ["one ", "two"]


async def test_nobody_else_is_told() -> None:
    asides = [start("p", stage="plan", is_answer=False), say("p", "I plan."), say("unknown", "x")]
    task = start("t", stage="execute")
    task.task_id = "k1"
    assert await read_pieces(*asides, task, say("t", "did it"), start("s"), say("s", "done")) == ["done"]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
async def test_the_events_of_a_case_lead_to_its_state(case: dict[str, Any]) -> None:
    run = RunStream(play([parse_event(json.dumps(event, ensure_ascii=False)) for event in case["events"]]))
    told = "".join([piece async for piece in run.text()])
    assert describe_fold(run.state)["answer"] == case["state"]["answer"]
    if not any(event["type"] == "attempt.reset" for event in case["events"]):
        assert told.replace("\n\n", "").endswith(case["state"]["answer"].replace("\n\n", ""))
