"""A run's stream as its readers see it: each text once, whatever is repeated, and the answers of the fold cases."""

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


async def stream_deltas(deltas: Sequence[agent_pb2.AgentDelta]) -> AsyncIterator[agent_pb2.AgentDelta]:
    for delta in deltas:
        yield delta


def make_start(block: str, **fields: Any) -> agent_pb2.AgentDelta:
    return agent_pb2.AgentDelta(content_start=agent_pb2.ContentStart(content_id=block, **fields))


def make_delta(block: str, text: str) -> agent_pb2.AgentDelta:
    return agent_pb2.AgentDelta(content_delta=agent_pb2.ContentDelta(content_id=block, delta=text))


def make_snapshot(block: str, text: str) -> agent_pb2.AgentDelta:
    return agent_pb2.AgentDelta(content_snapshot=agent_pb2.ContentSnapshot(content_id=block, text=text))


async def read_pieces(*deltas: agent_pb2.AgentDelta) -> list[str]:
    return [piece async for piece in RunStream(stream_deltas(deltas)).text()]


async def test_each_piece_is_yielded_as_it_arrives() -> None:
    assert await read_pieces(make_start("a"), make_delta("a", "\n"), make_delta("a", "two "), make_delta("a", "")) == [
        "\n",
        "two ",
    ]


async def test_repeated_text_is_yielded_once() -> None:
    first_deltas = [make_start("a"), make_delta("a", "one "), make_delta("a", "two ")]
    assert await read_pieces(*first_deltas, make_snapshot("a", "one two three")) == ["one ", "two ", "three"]
    assert await read_pieces(*first_deltas, make_start("a"), make_delta("a", "one two thr"), make_delta("a", "ee")) == [
        "one ", "two ", "thr", "ee"
    ]  # fmt: skip
    assert await read_pieces(*first_deltas, make_start("a"), make_delta("a", "one"), make_delta("a", " two three")) == [
        "one ",
        "two ",
        "three",
    ]
    assert await read_pieces(make_snapshot("a", "one"), make_snapshot("b", "two")) == ["one", "\n\ntwo"]


async def test_a_block_after_a_reset_under_the_same_id_is_yielded_in_full() -> None:
    lost = agent_pb2.AgentDelta(seq=3, attempt_reset=agent_pb2.AttemptReset(from_seq=0))
    first_deltas = [make_start("a"), make_delta("a", "one")]
    first_deltas[0].seq = 1
    assert await read_pieces(*first_deltas, lost, make_start("a"), make_delta("a", "uno"), make_delta("a", " due")) == [
        "one",
        "uno",
        " due",
    ]


async def test_a_reader_that_stops_can_continue_at_its_position() -> None:
    run = RunStream(
        stream_deltas(
            [make_start("a"), make_delta("a", "one "), make_delta("a", "two "), make_snapshot("a", "one two three")]
        )
    )
    async for piece in run.text():
        assert piece == "one "
        break
    assert [piece async for piece in run.text()] == ["two ", "three"]


async def test_text_of_a_block_started_before_reading_is_yielded() -> None:
    run = RunStream(stream_deltas([make_start("a"), make_delta("a", "one "), make_delta("a", "two")]))
    await anext(run)
    assert [piece async for piece in run.text()] == ["one ", "two"]


async def test_only_the_runs_answer_is_yielded() -> None:
    asides = [make_start("p", stage="plan", is_answer=False), make_delta("p", "I plan."), make_delta("unknown", "x")]
    task = make_start("t", stage="execute")
    task.task_id = "k1"
    assert await read_pieces(*asides, task, make_delta("t", "did it"), make_start("s"), make_delta("s", "done")) == [
        "done"
    ]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
async def test_the_events_of_a_case_fold_to_its_state(case: dict[str, Any]) -> None:
    run = RunStream(stream_deltas([parse_event(json.dumps(event, ensure_ascii=False)) for event in case["events"]]))
    text = "".join([piece async for piece in run.text()])
    assert describe_fold(run.state)["answer"] == case["state"]["answer"]
    if not any(event["type"] == "attempt.reset" for event in case["events"]):
        assert text.replace("\n\n", "").endswith(case["state"]["answer"].replace("\n\n", ""))
