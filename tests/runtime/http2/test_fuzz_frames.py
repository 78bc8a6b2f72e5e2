"""Valid and invalid frames in any order, over the sockets of trials/fuzz/http2.py, at both ends."""

from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.http2 import wire
from tests.support.http2.wire import Header, block, headers_of, message, opening, raw, reset, setting, window
from trials.fuzz.http2 import CLIENT, check

IDS = st.sampled_from([1, 3, 5, 7, 9])
ANY_ID = st.integers(0, 10) | st.just(2**31 - 1)
PATHS = st.sampled_from(["/a/u", "/a/s", "/a/c", "/a/b", "/a/x"])
MORE = st.sampled_from(
    [(), (("grpc-timeout", "1n"),), (("grpc-timeout", "5S"),), (("key-bin", "AA=="),), (("content-type", "a/b"),)]
)
ANSWERS = st.sampled_from(
    [
        [(":status", "200"), ("content-type", "application/grpc")],
        [(":status", "200"), ("content-type", "application/grpc"), ("grpc-status", "0")],
        [(":status", "503")],
        [("grpc-status", "0")],
        [("grpc-status", "5"), ("grpc-message", "%20%zz")],
    ]
)
BODIES = st.sampled_from([b"", b"a", b"ab" * 100, b"x" * 999, b"x" * 1001, b"x" * 16000])
SIZES = st.sampled_from([0, 1, 100, 65535, 2**31 - 1, 2**31, 2**32 - 1])


def request(stream_id: int, path: str, more: tuple[Header, ...], end: bool) -> bytes:
    return opening(stream_id, headers_of("", *more, path=path), end=end)


def answer(stream_id: int, fields: list[Header], end: bool) -> bytes:
    return raw(wire.HEADERS, wire.END_HEADERS | (wire.END_STREAM if end else 0), stream_id, block(fields))


def in_halves(stream_id: int, at: int, path: str) -> bytes:
    whole = block(headers_of("", path=path))
    return raw(wire.HEADERS, 0, stream_id, whole[:at]) + raw(wire.CONTINUATION, wire.END_HEADERS, stream_id, whole[at:])


def part(stream_id: int, body: bytes, flags: int) -> bytes:
    return raw(wire.DATA, flags, stream_id, body)


YES_OR_NO = st.booleans()
requests = st.builds(request, IDS, PATHS, MORE, YES_OR_NO)
answers = st.builds(answer, IDS, ANSWERS, YES_OR_NO)
halves = st.builds(in_halves, IDS, st.integers(0, 50), PATHS)
messages = st.builds(message, IDS, BODIES, end=YES_OR_NO)
pieces = st.builds(part, IDS, BODIES, st.integers(0, 15))
windows = st.builds(window, ANY_ID, st.sampled_from([1, 1000, 2**31 - 1]))
resets = st.builds(reset, IDS, SIZES)
settings = st.builds(setting, st.integers(0, 9), SIZES)
anything = st.builds(raw, st.integers(0, 11), st.integers(0, 255), ANY_ID, st.binary(max_size=20))

FRAMES = st.lists(
    requests | answers | messages | pieces | windows | resets | settings | halves | anything, max_size=20
).map(b"".join)


@given(end=st.sampled_from([0, CLIENT]), step=st.integers(0, 63), frames=FRAMES)
@example(
    end=0, step=0, frames=opening(1, headers_of("", path="/a/u")) + raw(wire.RST_STREAM, 0, 1, bytes(4)) + window(1, 1)
)
def test_any_frames_can_only_end_their_connection(end: int, step: int, frames: bytes) -> None:
    check(bytes([end | step]) + frames)
