"""Our own encoder and decoder of text deltas give the same results as protobuf's."""

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from headrace.v1 import agent_pb2, common_pb2, llm_pb2
from services.orchestrator.run.answers.answer import Answer, BlockNames
from services.orchestrator.run.answers.toolbox import Toolbox
from services.orchestrator.run.events import blocks
from services.orchestrator.run.events.blocks import TextBlock
from services.orchestrator.run.events.feed import Feed

Delta = agent_pb2.AgentDelta
LlmDelta = llm_pb2.LlmDelta

texts = st.one_of(
    st.text(max_size=200),
    st.tuples(st.sampled_from("xé"), st.sampled_from([126, 127, 128, 16_381, 16_384])).map(lambda of: of[0] * of[1]),
)
ids = st.one_of(st.none(), st.text(max_size=140))
seqs = st.integers(1, 2**63 - 1)


def set_scope(event: Delta, subagent_id: str | None, task_id: str | None) -> Delta:
    if subagent_id is not None:
        event.subagent_id = subagent_id
    if task_id is not None:
        event.task_id = task_id
    return event


@given(st.sampled_from(["content", "reasoning"]), st.text(max_size=140), ids, ids, seqs, seqs, texts)
def test_our_encoding_of_a_delta_equals_protobufs(
    kind: str, block_id: str, subagent_id: str | None, task_id: str | None, seq: int, timestamp: int, text: str
) -> None:
    if kind == "content":
        start_event = Delta(content_start=agent_pb2.ContentStart(content_id=block_id))
        event = Delta(content_delta=agent_pb2.ContentDelta(content_id=block_id, delta=text))
    else:
        start_event = Delta(reasoning_start=agent_pb2.ReasoningStart(reasoning_id=block_id))
        event = Delta(reasoning_delta=agent_pb2.ReasoningDelta(reasoning_id=block_id, delta=text))
    block = TextBlock(kind, set_scope(start_event, subagent_id, task_id))
    encoded = block.add(text.encode(), seq, timestamp)
    event.seq, event.timestamp = seq, timestamp
    set_scope(event, subagent_id, task_id)
    assert encoded == event.SerializeToString()


@given(texts)
def test_text_at_finds_the_text_of_a_text_delta(text: str) -> None:
    for delta in (LlmDelta(content=text), LlmDelta(reasoning=text)):
        raw = delta.SerializeToString()
        assert raw[blocks.text_at(raw) :].decode() == text
        assert blocks.text_at(raw)


@pytest.mark.parametrize(
    "delta",
    [
        LlmDelta(),
        LlmDelta(started=llm_pb2.LlmStarted(provider="p", model="m", attempt=1)),
        LlmDelta(tool_call=llm_pb2.ToolCallDelta(index=1, id="c", name="n", arguments="{}")),
        LlmDelta(provider_state="{}"),
        LlmDelta(usage=common_pb2.Usage(input_tokens=3)),
        LlmDelta(finish=llm_pb2.LlmFinish(reason="stop")),
    ],
)
def test_text_at_is_zero_for_other_deltas(delta: llm_pb2.LlmDelta) -> None:
    assert blocks.text_at(delta.SerializeToString()) == 0


@given(st.binary(max_size=300), st.sampled_from([b"", b"\x12", b"\x1a"]))
def test_text_at_finds_the_same_text_as_protobuf(data: bytes, key: bytes) -> None:
    raw = key + data
    if position := blocks.text_at(raw):
        delta = LlmDelta.FromString(raw)
        assert (delta.content or delta.reasoning).encode() == raw[position:]
        assert delta.SerializeToString() == raw


def decode_deltas(*raws: bytes) -> Answer:
    feed = Feed()
    answer = Answer(feed, feed.publish, BlockNames("run"), Toolbox(), 9)
    for raw in raws:
        answer.take(raw)
    answer.close()
    return answer


def test_a_text_delta_with_an_unknown_field_is_decoded() -> None:
    unknown = b"\xf8\x07\x01"
    assert decode_deltas(LlmDelta(content="Hel").SerializeToString() + unknown, b"\x1a\x82\x00lo").text == "Hello"


def test_text_that_is_not_utf_8_raises_protobufs_decode_error() -> None:
    with pytest.raises(DecodeError):
        decode_deltas(b"\x1a\x01\xff")
