"""The feed, its journal and its readers, with answers of scripted deltas; no service is involved."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import OutOfRange, Overloaded
from headrace.event_json import parse_event
from headrace.run_stream import RunStream
from headrace.v1 import agent_pb2, llm_pb2
from services.orchestrator.run.answers.answer import Answer, BlockNames
from services.orchestrator.run.answers.toolbox import Toolbox
from services.orchestrator.run.events.feed import QUEUE_MAX, Feed, Followed
from services.orchestrator.run.single_waiter_event import SingleWaiterEvent
from tests.support.orchestrator import as_json
from tests.support.order import Event, check_order, fold, texts

RUN_ID = "3f0c0000-0000-4000-8000-000000000001"
Delta = agent_pb2.AgentDelta


def start_run(feed: Feed) -> None:
    feed.publish(agent_pb2.RequestQuery(message="hi"))
    feed.publish(agent_pb2.RunStart(run_id=RUN_ID))


def end_run(feed: Feed) -> None:
    feed.publish(agent_pb2.RunComplete(run_id=RUN_ID, finish_reason="stop"))


def answer_calls(feed: Feed, answer: Answer) -> None:
    for call in answer.calls:
        for stream in ("stdout", "stdout", "stderr"):
            output = agent_pb2.ToolOutput(tool_id=call.tool_id, stream=stream, delta="x\n")
            feed.publish(output)
        result = agent_pb2.ToolResult(tool_id=call.tool_id, result="done", ok=True)
        feed.publish(result)


class RecordingReader:
    """A reader's outlet that collects events. Clearing `room` makes it a slow reader."""

    def __init__(self, on_event: Callable[[Event], None] = lambda event: None) -> None:
        self.events: list[Event] = []
        self.room = asyncio.Event()
        self.room.set()
        self._on_event = on_event

    def send(self, message: bytes) -> bool:
        event = as_json(Delta.FromString(message))
        self.events.append(event)
        self._on_event(event)
        return self.room.is_set()

    async def wait_until_drained(self) -> None:
        await self.room.wait()


@asynccontextmanager
async def readers_of(feed: Feed, *ears: RecordingReader) -> AsyncGenerator[list[asyncio.Task[Followed]]]:
    """Read the feed with these readers from its start; those not at its end are cancelled after the block."""
    reading = [asyncio.create_task(feed.follow(0, ear)) for ear in ears]
    await asyncio.sleep(0)
    try:
        async with asyncio.timeout(50):
            yield reading
    finally:
        for task in reading:
            task.cancel()
        await asyncio.wait(reading)


@asynccontextmanager
async def feed_with_reader() -> AsyncGenerator[tuple[Feed, RecordingReader, list[asyncio.Task[Followed]]]]:
    """A feed of a started run, with one reader."""
    feed, ear = Feed(), RecordingReader()
    start_run(feed)
    async with readers_of(feed, ear) as reading:
        yield feed, ear, reading


def make_answer(feed: Feed, names: BlockNames | None = None) -> Answer:
    return Answer(feed, feed.publish, names or BlockNames(RUN_ID), Toolbox(), 9)


def send_texts(answer: Answer, *texts: str) -> None:
    for text in texts:
        answer.take(llm_pb2.LlmDelta(content=text).SerializeToString())


def fragment(index: int, arguments: str) -> llm_pb2.LlmDelta:
    call = llm_pb2.ToolCallDelta(index=index, id=f"call_{index}", name="tool", arguments=arguments)
    return llm_pb2.LlmDelta(tool_call=call)


fragments = st.one_of(
    st.builds(llm_pb2.LlmDelta, content=st.text(max_size=5)),
    st.builds(llm_pb2.LlmDelta, reasoning=st.text(max_size=5)),
    st.builds(fragment, st.integers(0, 2), st.sampled_from(["", "{", "}", '{"a":', "1}", "{}"])),
)


def join_output(events: list[Event]) -> dict[tuple[str, str], str]:
    """Return the output of each call and stream."""
    output: dict[tuple[str, str], str] = {}
    for event in events:
        if event["type"] == "tool.output":
            key = event["toolId"], event["stream"]
            output[key] = output.get(key, "") + event["delta"]
    return output


def check_reset(feed: Feed, events: list[Event], stored_seq: int) -> None:
    """Check that after a reset to `stored`, the last seq in the log, a reader that attached after it has the same as an
    uninterrupted one."""
    payload = agent_pb2.AttemptReset(run_id=RUN_ID, from_seq=stored_seq, reason="INTERRUPTED")
    reset = as_json(Delta(seq=1_000_001, timestamp=1, attempt_reset=payload))
    for last_seq in range(stored_seq, feed.seq + 1):
        resumed = [event for event in events if event["seq"] <= last_seq]
        resumed += [as_json(event) for event in feed.since(last_seq)]
        assert fold([*resumed, reset]) == fold([*events, reset])
        assert join_output(resumed) == join_output(events)


async def attach_while_calls_run(turns: list[list[llm_pb2.LlmDelta]]) -> None:
    feed, names, ear = Feed(), BlockNames(RUN_ID), RecordingReader()
    async with readers_of(feed, ear):
        start_run(feed)
        for turn in turns:
            answer = make_answer(feed, names)
            for delta in turn:
                answer.take(delta.SerializeToString())
            answer.close()
            stored = feed.seq
            for call in answer.calls:
                for stream in ("stdout", "stdout", "stderr", "stdout"):
                    feed.publish(agent_pb2.ToolOutput(tool_id=call.tool_id, stream=stream, delta="x\n"))
                    check_reset(feed, ear.events, stored)
            for call in answer.calls:
                feed.publish(agent_pb2.ToolResult(tool_id=call.tool_id, result="done", ok=True))


async def test_a_reader_that_attaches_during_an_action_keeps_it_when_the_owner_dies() -> None:
    feed, ear = Feed(), RecordingReader()
    async with readers_of(feed, ear):
        start_run(feed)
        feed.publish(agent_pb2.ActionStart(action_id="a_1", action_name="open"))
        feed.publish(agent_pb2.ActionArgs(action_id="a_1", delta="{}"))
        feed.publish(agent_pb2.ActionEnd(action_id="a_1"))
        stored = feed.seq
        feed.publish(agent_pb2.RunNotice(code="ANOTHER_CALL", message="continues meanwhile"))
        feed.publish(agent_pb2.ActionParam(action_id="a_1"))
        check_reset(feed, ear.events, stored)


async def attach_at_every_moment(turns: list[list[llm_pb2.LlmDelta]]) -> None:
    feed, names = Feed(), BlockNames(RUN_ID)
    snapshots: list[tuple[int, int, list[Event]]] = []

    def attach(event: Event) -> None:
        seq = event["seq"]
        for last_seq in {0, seq // 2, seq - 1}:
            snapshots.append((last_seq, seq, [as_json(event) for event in feed.since(last_seq)]))

    ear = RecordingReader(attach)
    async with readers_of(feed, ear) as reading:
        start_run(feed)
        for turn in turns:
            answer = make_answer(feed, names)
            for delta in turn:
                answer.take(delta.SerializeToString())
            answer.close()
            answer_calls(feed, answer)
        end_run(feed)
        assert (await reading[0]).sent == feed.seq

    check_order(ear.events)
    for last_seq, seq, caught_up in snapshots:
        resumed = ear.events[:last_seq] + caught_up + ear.events[seq:]
        assert fold(resumed) == fold(ear.events)
        seqs = [event["seq"] for event in caught_up]
        assert seqs == sorted(seqs)
        assert all(last_seq <= number <= seq for number in seqs)


@pytest.mark.parametrize("attach", [attach_while_calls_run, attach_at_every_moment])
@pytest.mark.parametrize("examples", [20, pytest.param(100, marks=pytest.mark.nightly)])
def test_a_reader_that_attaches_at_any_moment_ends_with_the_same_result(
    attach: Callable[[list[list[llm_pb2.LlmDelta]]], Coroutine[Any, Any, None]], examples: int
) -> None:
    """Also when the owner dies: seed 3253 of trials/simulation dropped a call that started before the reset."""

    @settings(max_examples=examples)
    @given(turns=st.lists(st.lists(fragments, max_size=12), max_size=3))
    def run(turns: list[list[llm_pb2.LlmDelta]]) -> None:
        asyncio.run(attach(turns))

    run()


async def test_publishing_a_delta_sends_it_to_every_reader_before_it_returns() -> None:
    feed = Feed()
    start_run(feed)
    first, second = RecordingReader(), RecordingReader()
    async with readers_of(feed, first, second):
        answer = make_answer(feed)
        for text in ("\n\n", " ", "half", ""):
            send_texts(answer, text)
            assert first.events[-1]["delta"] == second.events[-1]["delta"] == text
        answer.close()
        end_run(feed)
    assert first.events == second.events
    check_order(first.events)
    assert texts(first.events, "content") == ["\n\n", " ", "half", ""]


async def test_a_slow_reader_gets_every_event_later_in_order() -> None:
    feed = Feed()
    start_run(feed)
    slow, quick = RecordingReader(), RecordingReader()
    async with readers_of(feed, slow, quick) as reading:
        slow.room.clear()
        answer = make_answer(feed)
        send_texts(answer, *"abc")
        answer.close()
        end_run(feed)
        await reading[1]
        assert len(slow.events) == 3
        slow.room.set()
        await reading[0]
    assert slow.events == quick.events
    assert len(slow.events) == feed.seq


async def test_following_from_beyond_the_last_event_is_out_of_range() -> None:
    feed = Feed()
    start_run(feed)
    with pytest.raises(OutOfRange, match="lastSeq 3 is beyond"):
        await feed.follow(3, RecordingReader())


async def test_a_reader_that_leaves_is_forgotten() -> None:
    feed = Feed()
    start_run(feed)
    async with readers_of(feed, RecordingReader()):
        assert feed.readers == 1
    assert feed.readers == 0


async def test_a_cut_feed_ends_its_readers_streams_without_a_terminal_event() -> None:
    async with feed_with_reader() as (feed, ear, reading):
        feed.publish(agent_pb2.RunNotice(run_id=RUN_ID), held=True)
        feed.cut()
        assert (await reading[0]).sent == 2
    assert [event["seq"] for event in ear.events] == [1, 2]


async def test_a_reader_without_events_of_a_cut_feed_is_told_to_attach_again() -> None:
    feed = Feed()
    start_run(feed)
    ear = RecordingReader()
    reading = asyncio.create_task(feed.follow(feed.seq, ear))
    while not feed.readers:
        await asyncio.sleep(0)
    feed.cut()
    with pytest.raises(Overloaded, match="attach again"):
        await reading
    assert ear.events == []


async def test_a_call_ends_with_complete_arguments_when_the_next_one_starts() -> None:
    feed, ear = Feed(), RecordingReader()
    async with readers_of(feed, ear):
        answer = make_answer(feed)
        for index, arguments in ((0, '{"city":'), (0, '"Rome"}'), (1, "{}")):
            answer.take(fragment(index, arguments).SerializeToString())
        answer.close()
    kinds = [event["type"] for event in ear.events]
    assert kinds == ["tool.start", "tool.args", "tool.args", "tool.end", "tool.start", "tool.args", "tool.end"]
    assert [call.arguments for call in answer.calls] == ['{"city":"Rome"}', "{}"]
    assert len({call.tool_id for call in answer.calls}) == 2


async def test_a_held_event_and_later_ones_wait_until_it_is_released() -> None:
    feed = Feed()
    start_run(feed)
    ear, late = RecordingReader(), RecordingReader()
    async with readers_of(feed, ear) as reading:
        held_seq = feed.publish(agent_pb2.RunNotice(run_id=RUN_ID, code="CODE", message="text"), held=True).seq
        send_texts(answer := make_answer(feed), "behind it")
        answer.close()
        end_run(feed)
        async with readers_of(feed, late) as reading_late:
            assert [event["seq"] for event in ear.events] == [event["seq"] for event in late.events] == [1, 2]
            feed.release(held_seq)
            assert ear.events[2]["seq"] == late.events[2]["seq"] == held_seq
            await asyncio.gather(*reading, *reading_late)
    assert len(ear.events) == feed.seq
    assert fold(late.events) == fold(ear.events)


async def test_each_of_two_held_events_waits_for_its_own_release() -> None:
    async with feed_with_reader() as (feed, ear, _):
        first, second = (feed.publish(agent_pb2.RunNotice(run_id=RUN_ID), held=True).seq for _ in range(2))
        feed.release(second)
        assert len(ear.events) == 2
        feed.release(first)
        assert [event["seq"] for event in ear.events] == [1, 2, first, second]


async def test_deltas_beyond_the_queue_after_a_held_event_are_folded_on_release() -> None:
    async with feed_with_reader() as (feed, ear, reading):
        held_seq = feed.publish(agent_pb2.RunNotice(run_id=RUN_ID), held=True).seq
        send_texts(answer := make_answer(feed), *("x" * (QUEUE_MAX + 10)))
        feed.release(held_seq)
        assert [event["type"] for event in ear.events[2:]] == ["run.notice", "content.start", "content.delta"]
        send_texts(answer, "y")
        assert ear.events[-1]["delta"] == "y"
        answer.close()
        end_run(feed)
        await reading[0]
    assert fold(ear.events)["blocks"][f"{RUN_ID}_c_1"]["text"] == "x" * (QUEUE_MAX + 10) + "y"


WORDS = [f"word-{number:05} " for number in range(20_000)]
SENT_BEFORE_PAUSE = 1970


async def iterate_events(ear: RecordingReader) -> AsyncIterator[agent_pb2.AgentDelta]:
    for event in ear.events:
        yield parse_event(json.dumps(event))


async def test_a_lagging_reader_gets_every_word() -> None:
    """The reader pauses while a model sends 20,000 words, most of which then come as a snapshot."""
    feed, ear = Feed(), RecordingReader()
    async with readers_of(feed, ear) as reading:
        start_run(feed)
        answer = make_answer(feed)
        send_texts(answer, *WORDS[:SENT_BEFORE_PAUSE])
        ear.room.clear()
        send_texts(answer, *WORDS[SENT_BEFORE_PAUSE:])
        answer.close()
        end_run(feed)
        ear.room.set()
        await reading[0]
    run = RunStream(iterate_events(ear))
    pieces = [piece async for piece in run.text()]
    assert "".join(pieces) == run.state.answer == "".join(WORDS)
    assert len(texts(ear.events, "content")) == SENT_BEFORE_PAUSE + 1, "one event has all the other words"
    assert ear.events[-1]["type"] == "run.complete"


async def test_a_cancelled_waiter_does_not_consume_the_event() -> None:
    flag = SingleWaiterEvent()
    cancelled = asyncio.create_task(flag.wait())
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait({cancelled})
    waiting = asyncio.create_task(flag.wait())
    await asyncio.sleep(0)
    flag.set()
    async with asyncio.timeout(50):
        await waiting
