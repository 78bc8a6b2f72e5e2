"""The SSE reader: any bytes, in any pieces, give the frames of a simple reference parser, or BadFrame.

The first two bytes of an input select the size of the pieces and the maximum size of a frame.
"""

from collections.abc import Iterable

from headrace.errors import BadFrame
from headrace.sse import FRAME_SIZE_BYTES_MAX, SseFrame, SseReader

BOM = b"\xef\xbb\xbf"
_VALUES = {b"data", b"event", b"id"}


def check(data: bytes) -> None:
    """Compare reading the stream whole, in steps and byte by byte; if it fits, also with the reference parser."""
    stream = data[2:]
    if len(data) < 2 or BOM in stream[1:]:  # the reader drops a BOM before any frame
        return
    step, size_bytes_max = 1 + data[0] % 16, data[1] or FRAME_SIZE_BYTES_MAX
    whole = read([stream], size_bytes_max)
    for size in (step, 1):
        chunks = (stream[at : at + size] for at in range(0, len(stream), size))
        cut = read(chunks, size_bytes_max)
        assert cut == whole, f"in chunks of {size}: {cut}, whole: {whole}"
    frames, is_bad = whole
    if len(stream) <= size_bytes_max:
        assert not is_bad
        assert frames == plainly(stream), f"read: {frames}, by the format: {plainly(stream)}"


def read(chunks: Iterable[bytes], size_bytes_max: int) -> tuple[list[SseFrame], bool]:
    """Return the frames, and whether BadFrame ended them."""
    reader = SseReader(size_bytes_max=size_bytes_max)
    frames: list[SseFrame] = []
    try:
        for chunk in chunks:
            frames.extend(reader.feed(chunk))
            held = len(reader._buffer)  # pyright: ignore[reportPrivateUsage] - how much it holds is its promise
            assert held <= size_bytes_max + 1, f"{held} bytes are held"
        frames.extend(reader.finish())
    except BadFrame:
        return frames, True
    return frames, False


def plainly(stream: bytes) -> list[SseFrame]:
    """Return the frames according to https://html.spec.whatwg.org/multipage/server-sent-events.html, plus an
    unfinished last one.
    """
    lines = stream.removeprefix(BOM).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    frames: list[SseFrame] = []
    values: dict[bytes, list[bytes]] = {}
    for line in [*lines, b""]:
        name, _, value = line.partition(b":")
        if name in _VALUES:
            values.setdefault(name, []).append(value.removeprefix(b" "))
        elif not line:
            if b"data" in values:
                event, frame_id = (_last(values.get(key)) for key in (b"event", b"id"))
                frames.append(SseFrame(b"\n".join(values[b"data"]), event, frame_id))
            values = {}
    return frames


def _last(values: list[bytes] | None) -> str | None:
    return values[-1].decode(errors="replace") if values else None
