"""One table of provider streams, run over real HTTP, and through the readers with their bytes split everywhere."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import HeadraceError
from headrace.v1 import llm_pb2
from services.llm_gateway.protocols.common.answer_reader import AnswerSource
from services.llm_gateway.protocols.registry import PROTOCOLS
from services.llm_gateway.providers.provider_file import Provider
from tests.llm_gateway.recorded import FOLDER, TAKEN_ID, Recorded, describe_deltas, describe_usage, load_recorded
from tests.support.llm_gateway.gateway import Asking, text_message

STREAMS = load_recorded()
by_name = pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: stream.name)


@by_name
async def test_a_stream_becomes_the_expected_deltas_over_http(asking: Asking, stream: Recorded) -> None:
    called = text_message("assistant", "", tool_calls=[llm_pb2.ToolCall(id=TAKEN_ID, name="f", arguments="{}")])
    before = [text_message("user", "x"), called, text_message("tool", "y", tool_call_id=TAKEN_ID, name="f")]
    steps = [{"raw": stream.data.decode("latin-1")}, {"end": True}]
    async with asking([{"steps": steps, "opening": False}], protocol=stream.protocol) as gateway:
        result = await gateway.chat(*before)
    assert describe_deltas(result.deltas) == stream.deltas
    usages = [describe_usage(delta.usage) for delta in result.deltas if delta.HasField("usage")]
    expected = [] if stream.usage is None else [stream.usage]
    if expected and "input_tokens" not in expected[0]:
        assert usages[0].pop("input_tokens") > 0, "the gateway estimates what the provider does not tell"
        expected = [expected[0] | {"estimated": True}]
    assert usages == expected
    assert (result.reason or None) == stream.error
    if stream.finish:
        assert result.deltas[-1].finish.reason == stream.finish


def make_source(protocol: str) -> AnswerSource:
    entry = {"key": "sim", "protocol": protocol, "baseUrl": "http://sim", "models": [{"name": "sim-1"}]}
    return AnswerSource(Provider.model_validate(entry), "sim-1", "", frozenset({TAKEN_ID}))


def read(stream: Recorded, chunks: Iterable[bytes]) -> tuple[list[object], object]:
    """Run only the reader; return its deltas and how it ended."""
    deltas: list[bytes] = []
    answer = PROTOCOLS[stream.protocol].make_reader(make_source(stream.protocol), deltas.append)
    try:
        for chunk in chunks:
            if chunk:
                answer.feed_chunk(chunk)
            if answer.is_over:
                break
        if not answer.is_over:
            answer.feed_chunk(b"")
        end: object = answer.build_finish().reason, describe_usage(answer.build_usage())
    except HeadraceError as error:
        end = error.reason
    return [*describe_deltas([llm_pb2.LlmDelta.FromString(delta) for delta in deltas])], end


@by_name
def test_every_split_in_two_and_byte_by_byte_give_the_same_deltas(stream: Recorded) -> None:
    data = stream.data
    whole = read(stream, [data])
    assert whole[0] == stream.deltas
    assert read(stream, [data[at : at + 1] for at in range(len(data))]) == whole
    for at in range(1, len(data)):
        assert read(stream, [data[:at], data[at:]]) == whole


@given(st.sampled_from(STREAMS), st.data())
def test_random_splits_give_the_same_deltas(stream: Recorded, draw: st.DataObject) -> None:
    data = stream.data
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=12)))
    chunks = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    assert read(stream, chunks) == read(stream, [data])


ODD: list[Any] = [None, 0, -1, 1.5, "", "x", "11", [], [None], {}, {"a": 1}, True, "\ud83d"]


@given(st.sampled_from(STREAMS), st.data())
def test_odd_values_anywhere_give_an_answer_or_a_typed_error(stream: Recorded, draw: st.DataObject) -> None:
    lines = stream.data.split(b"\n")
    frames = [at for at, line in enumerate(lines) if line.startswith(b"data: {")]
    if not frames or stream.protocol == "bedrock":
        return
    at = draw.draw(st.sampled_from(frames))
    try:
        value: Any = json.loads(lines[at].removeprefix(b"data: "))
    except ValueError:
        return
    places = [(value, "more"), *list_places(value)]
    for holder, key in draw.draw(st.lists(st.sampled_from(places), min_size=1, max_size=3)):
        holder[key] = draw.draw(st.sampled_from(ODD))
    lines[at] = b"data: " + json.dumps(value).encode()
    read(stream, [b"\n".join(lines)])  # fails by any exception that is none of ours


def list_places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the place of every value within a JSON value: its object or list, and its key."""
    for key in [*value] if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from list_places(value[key])


def test_a_stop_before_the_answer_is_not_its_end() -> None:
    """Two seconds after a finish reason an answer is over: https://github.com/Chevey339/kelivo/pull/1002 (2026-09)."""
    answer = PROTOCOLS["gemini"].make_reader(make_source("gemini"), lambda delta: None)
    for parts, has_finish in (("", False), ('{"text":"Yes"}', True)):
        frame = f'{{"candidates":[{{"content":{{"parts":[{parts}]}},"finishReason":"STOP"}}]}}'
        answer.feed_chunk(f"data: {frame}\n\n".encode())
        assert answer.has_finish == has_finish


def test_every_stream_has_its_expected_result() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == {stream.name for stream in STREAMS}
    assert all((stream.finish is None) != (stream.error is None) for stream in STREAMS)
