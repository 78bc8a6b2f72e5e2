"""A turn whose gateway goes away is asked again: readers drop what it had said, and all of them see the same."""

import asyncio

import pytest

from headrace.v1 import memory_pb2
from tests.support.orchestrator import Serve, Step, Suite, read
from tests.support.orchestrator.runs import read_recorded
from tests.support.orchestrator.steps import ANSWER, BREAK, call, content, finish, reasoning
from tests.support.order import Event, fold
from tests.support.waiting import wait_until

BEGUN = {
    "content": content("Hel", "lo"),
    "reasoning and content": reasoning("Hm") + content("Hel"),
    "a call": call("look", '{"at":1}'),
    "text and half a call": content("Let me see.") + call("look", '{"at":1}')[:-1],
}


def resets(events: list[Event]) -> list[str]:
    return [event["reason"] for event in events if event["type"] == "attempt.reset"]


async def test_a_turn_that_has_said_nothing_is_asked_again(serve: Serve) -> None:
    async with serve([BREAK], ANSWER) as suite:
        events = await suite.ask()
        assert suite.llm.requests[0] == suite.llm.requests[1]
    assert (events[-1]["type"], resets(events)) == ("run.complete", [])
    assert events[-1]["usage"]["modelCalls"] == 1


@pytest.mark.parametrize("output", ["PLAIN", "REASONING_SUMMARY"])
@pytest.mark.parametrize("begun", BEGUN)
async def test_a_turn_that_has_begun_is_asked_again_from_its_beginning(serve: Serve, begun: str, output: str) -> None:
    async with serve([*BEGUN[begun], BREAK], ANSWER, output=output) as suite:
        events = await suite.ask()
        assert suite.llm.requests[0] == suite.llm.requests[1]
        assert not suite.tools.requests
        after = await read_recorded(suite, events[-1]["runId"])
    assert resets(events) == resets(after) == ["PROVIDER_UNAVAILABLE"]
    assert [block["text"] for block in fold(events)["blocks"].values()] == ["All good."]
    assert fold(events) == fold(after)
    assert (events[-1]["type"], events[-1]["usage"]["modelCalls"]) == ("run.complete", 2)


@pytest.mark.parametrize("begun", [[], content("Hel")])
async def test_a_turn_is_asked_again_once(serve: Serve, begun: list[str]) -> None:
    async with serve([*begun, BREAK]) as suite:
        events = await suite.ask()
        assert len(suite.llm.requests) == 2
        assert events[-1]["error"]["code"] == "PROVIDER_UNAVAILABLE"
        assert [block["text"] for block in fold(events)["blocks"].values()] == ["Hel"] * bool(begun)
        assert fold(events) == fold(await read_recorded(suite, events[-1]["runId"]))


async def test_a_turn_is_not_asked_again_when_no_model_call_is_left(serve: Serve) -> None:
    async with serve([*content("Hel"), BREAK], ANSWER, budget={"maxModelCalls": 1}) as suite:
        events = await suite.ask()
        assert len(suite.llm.requests) == 1
    assert (events[-1]["error"]["code"], resets(events)) == ("PROVIDER_UNAVAILABLE", [])
    assert [block["text"] for block in fold(events)["blocks"].values()] == ["Hel"]


@pytest.mark.parametrize(
    ("turns", "calls"),
    [([[*ANSWER, BREAK]], 1), ([[*reasoning("Hm"), BREAK], ANSWER], 2)],
    ids=["a complete answer", "what no reader has"],
)
async def test_what_need_not_be_taken_back_is_not(serve: Serve, turns: list[list[Step]], calls: int) -> None:
    async with serve(*turns, output="REASONING_SUMMARY") as suite:
        events = await suite.ask()
        assert len(suite.llm.requests) == calls
    assert (events[-1]["type"], resets(events)) == ("run.complete", [])
    assert events[-1]["usage"]["modelCalls"] == calls


async def test_whoever_attaches_to_such_a_turn_sees_the_same(serve: Serve) -> None:
    broken = [*reasoning("Hm"), *content("Hel", "lo"), 0.3, BREAK]
    async with serve(broken, [*content("All "), 0.3, *content("good."), *finish()]) as suite:
        asking = asyncio.create_task(suite.ask())
        early = await readers(suite, asked=1)
        late = await readers(suite, asked=2)
        events = await asking
        run_id = events[-1]["runId"]
        ended = [(seq, await read(suite.client, run_id, seq)) for seq in range(len(events))]
        for seq, rest in [*await asyncio.gather(*early), *await asyncio.gather(*late), *ended]:
            assert fold([*events[:seq], *rest]) == fold(events)


async def readers(suite: Suite, asked: int) -> list[asyncio.Task[tuple[int, list[Event]]]]:
    """One for each of the first events, who attach when the model was asked so often."""
    await wait_until(lambda: len(suite.llm.requests) >= asked)
    await asyncio.sleep(0.15)
    (run,) = (await suite.memory.ListUnfinishedRuns(memory_pb2.ListUnfinishedRunsRequest(), None)).runs

    async def read_rest(seq: int) -> tuple[int, list[Event]]:
        return seq, await read(suite.client, run.run_id, seq)

    return [asyncio.create_task(read_rest(seq)) for seq in range(8)]
