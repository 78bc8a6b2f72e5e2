"""The byte-level SSE reader: every form that the format allows, split at every byte."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import BadFrame
from headrace.sse import SseFrame, SseReader


def frames(*chunks: bytes, size_bytes_max: int = 1 << 20) -> list[SseFrame]:
    reader = SseReader(size_bytes_max=size_bytes_max)
    read = [frame for chunk in chunks for frame in reader.feed(chunk)]
    return read + list(reader.finish())


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"data: a\n\n", [SseFrame(b"a")]),
        (b"data:a\n\n", [SseFrame(b"a")]),
        (b"data:  a \n\n", [SseFrame(b" a ")]),
        (b"data\n\n", [SseFrame(b"")]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [SseFrame(b"a"), SseFrame(b"b")]),
        (b"data: a\r\rdata: b\r\r", [SseFrame(b"a"), SseFrame(b"b")]),
        (b"data: a\r\n\ndata: b\n\r\n", [SseFrame(b"a"), SseFrame(b"b")]),
        (b"data: a\ndata: b\ndata:\n\n", [SseFrame(b"a\nb\n")]),
        (b"id: 7\nevent: message\ndata: {}\n\n", [SseFrame(b"{}", "message", "7")]),
        (b"event: error\ndata: {}\n\ndata: x\n\n", [SseFrame(b"{}", "error"), SseFrame(b"x")]),
        (b": heartbeat\n\ndata: a\n: in between\n\n\n\n: end\n\n", [SseFrame(b"a")]),
        (b"\xef\xbb\xbfdata: a\n\n", [SseFrame(b"a")]),
        (b"\n\n\ndata: a\n\n", [SseFrame(b"a")]),
        (b"retry: 100\nunknown: x\ndata: a\n\n", [SseFrame(b"a")]),
        (b"data: a\n\ndata: b", [SseFrame(b"a"), SseFrame(b"b")]),
        (b"data: a\n\ndata: b\n", [SseFrame(b"a"), SseFrame(b"b")]),
        ("data: 水车\n\n".encode(), [SseFrame("水车".encode())]),
        (b"", []),
    ],
)
def test_every_form_is_read_whole_and_byte_by_byte(stream: bytes, expected: list[SseFrame]) -> None:
    assert frames(stream) == expected
    assert frames(*[stream[i : i + 1] for i in range(len(stream))]) == expected


@given(
    st.lists(st.sampled_from([b"data: ", b"data:", b"\n", b"\r", b"\r\n", b"id: 1", b": c", b"x", b"\xe6\xb0\xb4"])),
    st.data(),
)
def test_any_split_gives_the_same_frames(pieces: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(pieces)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    chunks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert frames(*chunks) == frames(stream)


def test_a_frame_is_yielded_with_its_last_byte() -> None:
    reader = SseReader()
    assert list(reader.feed(b"data: a\n")) == []
    assert list(reader.feed(b"\n")) == [SseFrame(b"a")]
    assert list(reader.feed(b"data: b\r\n\r")) == [SseFrame(b"b")]
    assert list(reader.feed(b"\ndata: c\n\n")) == [SseFrame(b"c")]


def test_a_frame_of_the_size_limit_is_accepted_and_a_larger_one_refused() -> None:
    limit = 1 << 20
    largest = b"data: " + b"x" * (limit - 6)
    assert len(frames(largest + b"\n\n")[0].data) == limit - 6
    with pytest.raises(BadFrame, match="larger than 1048576 bytes"):
        frames(largest + b"x\n\n")


def test_an_endless_line_is_refused_at_the_size_limit() -> None:
    reader = SseReader(size_bytes_max=100)
    assert list(reader.feed(b"x" * 100)) == []
    with pytest.raises(BadFrame):
        list(reader.feed(b"x"))


def test_frames_before_a_too_large_one_are_yielded() -> None:
    reader = SseReader(size_bytes_max=20)
    read = reader.feed(b"data: a\n\n" + b"x" * 30)
    assert next(read) == SseFrame(b"a")
    with pytest.raises(BadFrame):
        next(read)
