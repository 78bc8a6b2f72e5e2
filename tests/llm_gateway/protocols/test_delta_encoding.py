"""Hand-encoded deltas equal the protobuf encoding, byte for byte."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.v1.llm_pb2 import LlmDelta, ToolCallDelta
from services.llm_gateway.protocols.common.delta_encoding import encode_call, encode_content, encode_reasoning

texts = st.text(st.characters(exclude_categories=["Cs"]))
indexes = st.integers(0, 2**31 - 1)


@given(texts)
def test_texts_are_encoded_as_by_protobuf(text: str) -> None:
    assert encode_content(text) == LlmDelta(content=text).SerializeToString()
    assert encode_reasoning(text) == LlmDelta(reasoning=text).SerializeToString()


@given(indexes, texts, texts, texts)
def test_tool_calls_are_encoded_as_by_protobuf(index: int, arguments: str, call_id: str, name: str) -> None:
    call = ToolCallDelta(index=index, id=call_id, name=name, arguments=arguments)
    assert encode_call(index, arguments, call_id, name) == LlmDelta(tool_call=call).SerializeToString()


@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 129, 16_383, 16_384, 2**20, 2**21 + 1])
def test_texts_of_every_length_prefix_size_are_encoded_as_by_protobuf(size: int) -> None:
    text = "x" * size
    assert encode_content(text) == LlmDelta(content=text).SerializeToString()
    assert encode_call(1, text) == LlmDelta(tool_call=ToolCallDelta(index=1, arguments=text)).SerializeToString()
