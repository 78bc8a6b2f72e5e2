"""The feed and its journal, with answers made of scripted deltas; no service is involved."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import json_form
from headrace.errors import OutOfRange
from headrace.v1 import agent_pb2, llm_pb2
from services.orchestrator.answer import Answer, BlockNames
from services.orchestrator.feed import QUEUE_MAX, Feed
from services.orchestrator.toolbox import Toolbox
from tests.order import Event, check_order, fold, texts

RUN_ID = "3f0c0000-0000-4000-8000-000000000001"
Delta = agent_pb2.AgentDelta


def as_json(delta: Delta) -> Event:
    sent = json_form.event(delta)
    assert sent is not None
    return json.loads(sent.json)


def begin(feed: Feed) -> None:
    feed.publish("request_query", Delta(request_query=agent_pb2.RequestQuery(message="hi")))
    feed.publish("run_start", Delta(run_start=agent_pb2.RunStart(run_id=RUN_ID)))


def end(feed: Feed) -> None:
    feed.publish("run_complete", Delta(run_complete=agent_pb2.RunComplete(run_id=RUN_ID, finish_reason="stop")))


def answer_calls(feed: Feed, answer: Answer) -> None:
    for call in answer.calls:
        for stream in ("stdout", "stdout", "stderr"):
            output = agent_pb2.ToolOutput(tool_id=call.tool_id, stream=stream, delta="x\n")
            feed.publish("tool_output", Delta(tool_output=output))
        result = agent_pb2.ToolResult(tool_id=call.tool_id, result="done", ok=True)
        feed.publish("tool_result", Delta(tool_result=result))


async def collect(events: AsyncGenerator[Delta]) -> list[Event]:
    async with asyncio.timeout(5), aclosing(events):
        return [as_json(delta) async for delta in events]


def fragment(index: int, arguments: str) -> llm_pb2.LlmDelta:
    call = llm_pb2.ToolCallDelta(index=index, id=f"call_{index}", name="tool", arguments=arguments)
    return llm_pb2.LlmDelta(tool_call=call)


fragments = st.one_of(
    st.builds(llm_pb2.LlmDelta, content=st.text(max_size=5)),
    st.builds(llm_pb2.LlmDelta, reasoning=st.text(max_size=5)),
    st.builds(fragment, st.integers(0, 2), st.sampled_from(["", "{", "}", '{"a":', "1}", "{}"])),
)


@given(turns=st.lists(st.lists(fragments, max_size=12), max_size=3))
def test_attaching_at_every_seq_at_every_moment_folds_to_the_same_result(
    turns: list[list[llm_pb2.LlmDelta]],
) -> None:
    feed, names = Feed(), BlockNames(RUN_ID)
    whole: list[Event] = []
    publish = feed.publish
    snapshots: list[tuple[int, int, list[Event]]] = []

    def publish_and_attach(kind: str, delta: Delta) -> int:
        seq = publish(kind, delta)
        whole.append(as_json(delta))
        for last_seq in {0, seq // 2, seq - 1}:
            snapshots.append((last_seq, seq, [as_json(event) for event in feed.since(last_seq)]))
        return seq

    feed.publish = publish_and_attach  # type: ignore[method-assign]
    begin(feed)
    for turn in turns:
        answer = Answer(feed.publish, names, Toolbox())
        for delta in turn:
            answer.take(delta)
        answer.close()
        answer_calls(feed, answer)
    end(feed)

    check_order(whole)
    for last_seq, seq, caught_up in snapshots:
        resumed = whole[:last_seq] + caught_up + whole[seq:]
        assert fold(resumed) == fold(whole)
        seqs = [event["seq"] for event in caught_up]
        assert seqs == sorted(seqs)
        assert all(last_seq <= number <= seq for number in seqs)


async def test_two_readers_get_the_same_deltas_one_by_one() -> None:
    feed = Feed()
    begin(feed)
    readers = [asyncio.create_task(collect(feed.read(0))) for _ in range(2)]
    await asyncio.sleep(0)
    answer = Answer(feed.publish, BlockNames(RUN_ID), Toolbox())
    for text in ("\n\n", " ", "half", ""):
        answer.take(llm_pb2.LlmDelta(content=text))
    answer.close()
    end(feed)
    first, second = await asyncio.gather(*readers)
    assert first == second
    check_order(first)
    assert texts(first, "content") == ["\n\n", " ", "half", ""]


async def test_a_reader_too_slow_is_brought_up_to_date_and_holds_no_more_than_its_queue() -> None:
    feed = Feed()
    begin(feed)
    reader = feed.read(0)
    seen = [as_json(await anext(reader)), as_json(await anext(reader))]
    waiting = asyncio.create_task(anext(reader))
    await asyncio.sleep(0)
    answer = Answer(feed.publish, BlockNames(RUN_ID), Toolbox())
    for number in range(QUEUE_MAX + 10):
        answer.take(llm_pb2.LlmDelta(content=f"{number} "))
    answer.close()
    end(feed)
    seen.append(as_json(await waiting))
    async with asyncio.timeout(5), aclosing(reader):
        seen += [as_json(delta) async for delta in reader]
    assert len(seen) < 20
    text = "".join(f"{number} " for number in range(QUEUE_MAX + 10))
    assert fold(seen)["blocks"][f"{RUN_ID}_c_1"]["text"] == text
    assert seen[-1]["type"] == "run.complete"


async def test_a_position_beyond_the_last_event_is_out_of_range() -> None:
    feed = Feed()
    begin(feed)
    with pytest.raises(OutOfRange, match="lastSeq 3 is beyond"):
        await anext(feed.read(3))


async def test_a_reader_that_leaves_is_forgotten() -> None:
    feed = Feed()
    begin(feed)
    async with aclosing(feed.read(0)) as events:
        await anext(events)
        assert feed.readers == 1
    assert feed.readers == 0


def test_a_call_is_closed_when_the_next_one_starts_and_its_arguments_are_whole() -> None:
    feed = Feed()
    kinds: list[str] = []
    publish = feed.publish
    feed.publish = lambda kind, delta: (kinds.append(kind), publish(kind, delta))[1]  # type: ignore[method-assign]
    answer = Answer(feed.publish, BlockNames(RUN_ID), Toolbox())
    for index, arguments in ((0, '{"city":'), (0, '"Rome"}'), (1, "{}")):
        call = llm_pb2.ToolCallDelta(index=index, id=f"call_{index}", name="weather", arguments=arguments)
        answer.take(llm_pb2.LlmDelta(tool_call=call))
    answer.close()
    assert kinds == ["tool_start", "tool_args", "tool_args", "tool_end", "tool_start", "tool_args", "tool_end"]
    assert [call.arguments for call in answer.calls] == ['{"city":"Rome"}', "{}"]
    assert len({call.tool_id for call in answer.calls}) == 2


async def test_a_held_event_and_what_follows_it_wait_until_it_is_released() -> None:
    feed = Feed()
    begin(feed)
    notice = Delta(run_notice=agent_pb2.RunNotice(run_id=RUN_ID, code="CODE", message="text"))
    held = feed.publish("run_notice", notice, held=True)
    end(feed)
    async with asyncio.timeout(5), aclosing(feed.read(0)) as events:
        assert [(await anext(events)).seq for _ in range(2)] == [1, 2]
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        feed.release(held)
        assert (await waiting).seq == held
        assert [event.seq async for event in events] == [held + 1]
