"""A turn whose gateway goes away is retried: readers drop its first deltas and end with the same events."""

import asyncio

import pytest

from headrace.v1 import memory_pb2
from tests.support.orchestrator import Serve, Step, Suite, read
from tests.support.orchestrator.runs import read_recorded
from tests.support.orchestrator.steps import ANSWER, BREAK, call, content, finish, reasoning
from tests.support.order import Event, fold
from tests.support.waiting import wait_until

PARTIAL_ANSWERS = {
    "content": content("Hel", "lo"),
    "reasoning and content": reasoning("Hm") + content("Hel"),
    "a call": call("look", '{"at":1}'),
    "text and half a call": content("Let me see.") + call("look", '{"at":1}')[:-1],
}


def list_reset_reasons(events: list[Event]) -> list[str]:
    return [event["reason"] for event in events if event["type"] == "attempt.reset"]


async def test_a_turn_without_deltas_is_retried(serve: Serve) -> None:
    async with serve([BREAK], ANSWER) as suite:
        events = await suite.ask()
        assert suite.llm.requests[0] == suite.llm.requests[1]
    assert (events[-1]["type"], list_reset_reasons(events)) == ("run.complete", [])
    assert events[-1]["usage"]["modelCalls"] == 1


@pytest.mark.parametrize("output", ["PLAIN", "REASONING_SUMMARY"])
@pytest.mark.parametrize("case", PARTIAL_ANSWERS)
async def test_a_turn_with_deltas_is_reset_and_retried_from_its_start(serve: Serve, case: str, output: str) -> None:
    async with serve([*PARTIAL_ANSWERS[case], BREAK], ANSWER, output=output) as suite:
        events = await suite.ask()
        assert suite.llm.requests[0] == suite.llm.requests[1]
        assert not suite.tools.requests
        events_of_late_reader = await read_recorded(suite, events[-1]["runId"])
    assert list_reset_reasons(events) == list_reset_reasons(events_of_late_reader) == ["PROVIDER_UNAVAILABLE"]
    assert [block["text"] for block in fold(events)["blocks"].values()] == ["All good."]
    assert fold(events) == fold(events_of_late_reader)
    assert (events[-1]["type"], events[-1]["usage"]["modelCalls"]) == ("run.complete", 2)


@pytest.mark.parametrize("first_deltas", [[], content("Hel")])
async def test_a_turn_is_retried_once(serve: Serve, first_deltas: list[str]) -> None:
    async with serve([*first_deltas, BREAK]) as suite:
        events = await suite.ask()
        assert len(suite.llm.requests) == 2
        assert events[-1]["error"]["code"] == "PROVIDER_UNAVAILABLE"
        assert [block["text"] for block in fold(events)["blocks"].values()] == ["Hel"] * bool(first_deltas)
        assert fold(events) == fold(await read_recorded(suite, events[-1]["runId"]))


async def test_a_turn_is_not_retried_when_no_model_call_is_left(serve: Serve) -> None:
    async with serve([*content("Hel"), BREAK], ANSWER, budget={"maxModelCalls": 1}) as suite:
        events = await suite.ask()
        assert len(suite.llm.requests) == 1
    assert (events[-1]["error"]["code"], list_reset_reasons(events)) == ("PROVIDER_UNAVAILABLE", [])
    assert [block["text"] for block in fold(events)["blocks"].values()] == ["Hel"]


@pytest.mark.parametrize(
    ("turns", "calls"),
    [([[*ANSWER, BREAK]], 1), ([[*reasoning("Hm"), BREAK], ANSWER], 2)],
    ids=["a complete answer", "what no reader has"],
)
async def test_a_complete_answer_or_hidden_reasoning_is_not_reset(
    serve: Serve, turns: list[list[Step]], calls: int
) -> None:
    async with serve(*turns, output="REASONING_SUMMARY") as suite:
        events = await suite.ask()
        assert len(suite.llm.requests) == calls
    assert (events[-1]["type"], list_reset_reasons(events)) == ("run.complete", [])
    assert events[-1]["usage"]["modelCalls"] == calls


async def test_a_reader_attaching_during_a_retry_ends_with_the_same_result(serve: Serve) -> None:
    broken = [*reasoning("Hm"), *content("Hel", "lo"), 0.3, BREAK]
    async with serve(broken, [*content("All "), 0.3, *content("good."), *finish()]) as suite:
        asking = asyncio.create_task(suite.ask())
        early = await start_readers(suite, request_count=1)
        late = await start_readers(suite, request_count=2)
        events = await asking
        run_id = events[-1]["runId"]
        read_after_end = [(seq, await read(suite.client, run_id, seq)) for seq in range(len(events))]
        for seq, later_events in [*await asyncio.gather(*early), *await asyncio.gather(*late), *read_after_end]:
            assert fold([*events[:seq], *later_events]) == fold(events)


async def start_readers(suite: Suite, request_count: int) -> list[asyncio.Task[tuple[int, list[Event]]]]:
    """Start readers after each of the first events, once the model has been asked this often."""
    await wait_until(lambda: len(suite.llm.requests) >= request_count)
    await asyncio.sleep(0.15)
    (run,) = (await suite.memory.ListUnfinishedRuns(memory_pb2.ListUnfinishedRunsRequest(), None)).runs

    async def read_rest(seq: int) -> tuple[int, list[Event]]:
        return seq, await read(suite.client, run.run_id, seq)

    return [asyncio.create_task(read_rest(seq)) for seq in range(8)]
