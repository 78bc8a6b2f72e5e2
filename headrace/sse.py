"""Parses Server-Sent Events: bytes in, because a read may split a character, complete frames out.

https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from headrace.errors import BadFrame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FRAME_SIZE_BYTES_MAX = 1 << 20
"""Maximum size of a frame; the largest in practice have some hundred kB."""

_BOM = b"\xef\xbb\xbf"
_LF = 0x0A

Take: TypeAlias = "Callable[[bytes, str | None, str | None], None]"
"""Callback for a frame's data, event type and id."""


class SseFrame(NamedTuple):
    # A tuple, not a frozen dataclass: one is made per frame, and a tuple costs a third.

    data: bytes
    """Data lines, joined by line feeds."""

    event: str | None = None
    """Event type; None means `message`."""

    id: str | None = None
    """Id in this frame; earlier ids are not carried over."""


class SseReader:
    """Splits a stream into frames, buffering at most one."""

    __slots__ = ("_after_cr", "_buffer", "_size_bytes_max", "_take_other")

    def __init__(
        self, *, size_bytes_max: int = FRAME_SIZE_BYTES_MAX, take_other: Callable[[bytes], None] | None = None
    ) -> None:
        """`take_other` receives lines other than fields and comments, which the standard ignores."""
        self._take_other = take_other
        self._buffer = bytearray()
        self._after_cr = False
        self._size_bytes_max = size_bytes_max

    def feed(self, chunk: bytes) -> Iterator[SseFrame]:
        """Yield the frames that `chunk` completes; read them all before the next call. Raise BadFrame if one is
        too large.
        """
        frames: list[SseFrame] = []
        refused: BadFrame | None = None
        try:
            self.push(chunk, lambda data, event, frame_id: frames.append(SseFrame(data, event, frame_id)))
        except BadFrame as error:
            refused = error
        yield from frames
        if refused is not None:
            raise refused

    def push(self, chunk: bytes, take: Take) -> None:
        """Pass each frame that `chunk` completes to `take`; then raise BadFrame if one is too large."""
        buffer = self._buffer
        if self._after_cr or b"\r" in chunk:
            chunk = self._normalize_line_ends(chunk)
        elif not buffer and chunk.find(b"\n") == len(chunk) - 2 and chunk.startswith(b"data: ") and chunk[-1] == _LF:
            # One frame of one line, which is how providers send a token.
            if len(chunk) - 2 > self._size_bytes_max:
                self._check_size(len(chunk) - 2)
            take(chunk[6:-2], None, None)
            return
        # The blank line may have started in the previous chunk: search from one byte back, not the whole buffer
        # again.
        searched = max(len(buffer) - 1, 0)
        source: bytes | bytearray = chunk
        if buffer:
            buffer += chunk
            source = buffer
        start = 0
        while (end := source.find(b"\n\n", searched)) >= 0:
            self._check_size(end - start)
            self._pass_frame(source, start, end, take)
            start = searched = end + 2
        if source is buffer:
            del buffer[:start]
        elif start < len(chunk):
            buffer += memoryview(chunk)[start:]
        # A trailing line feed may be the first half of the blank line, which is not part of the frame.
        self._check_size(len(buffer) - buffer.endswith(b"\n"))

    def finish(self) -> Iterator[SseFrame]:
        """Return the last frame of a stream that ended without a blank line."""
        frames: list[SseFrame] = []
        self.push_rest(lambda data, event, frame_id: frames.append(SseFrame(data, event, frame_id)))
        return iter(frames)

    def push_rest(self, take: Take) -> None:
        rest = bytes(self._buffer)
        self._buffer.clear()
        self._pass_frame(rest, 0, len(rest), take)

    def _normalize_line_ends(self, chunk: bytes) -> bytes:
        # A CR ends its line at once; an LF that follows, even in the next chunk, belongs to that CR.
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._after_cr = False
        if chunk:
            self._after_cr = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _check_size(self, size_bytes: int) -> None:
        if size_bytes > self._size_bytes_max:
            self._buffer.clear()
            raise BadFrame(
                f"a frame of the stream is larger than {self._size_bytes_max} bytes",
                sizeBytesMax=self._size_bytes_max,
            )

    def _pass_frame(self, source: bytes | bytearray, start: int, end: int, take: Take) -> None:
        line_end = source.find(b"\n", start, end)
        if line_end < 0 and source.startswith(b"data: ", start):
            take(bytes(source[start + 6 : end]), None, None)
        elif (
            line_end >= 0
            and source.startswith(b"event: ", start)
            and source.startswith(b"data: ", line_end + 1)
            and source.find(b"\n", line_end + 1, end) < 0
        ):
            take(bytes(source[line_end + 7 : end]), source[start + 7 : line_end].decode(errors="replace"), None)
        else:
            self._pass_lines(bytes(source[start:end]), take)

    def _pass_lines(self, block: bytes, take: Take) -> None:
        data: list[bytes] = []
        event: str | None = None
        frame_id: str | None = None
        other: list[bytes] = []
        for line in block.removeprefix(_BOM).split(b"\n"):
            name, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if name == b"data":
                data.append(value)
            elif name == b"event":
                event = value.decode(errors="replace")
            elif name == b"id":
                frame_id = value.decode(errors="replace")
            elif name not in (b"", b"retry"):
                other.append(line)
        if data:
            take(b"\n".join(data), event, frame_id)
        if other and self._take_other is not None:
            self._take_other(b"\n".join(other))
