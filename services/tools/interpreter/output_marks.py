"""Finding the mark that ends a piece of code's output, in both streams, however the bytes are cut."""

from __future__ import annotations

from services.tools.sandbox.supervised_command import STREAMS, Stream


class Marked:
    """The output of one piece of code. `held` keeps, from one piece to the next, what came behind the mark."""

    def __init__(self, token: str, held: dict[Stream, bytes]) -> None:
        self.text = f"\0{token}\0"
        self._mark = self.text.encode()
        self._held = held
        self._missing = set(STREAMS.values())

    @property
    def is_complete(self) -> bool:
        return not self._missing

    def released(self, stream: Stream, data: bytes) -> bytes:
        """What of the stream's bytes so far is output for certain."""
        data = self._held.pop(stream, b"") + data
        if stream not in self._missing:
            self._held[stream] = data[
                -len(self._mark) :
            ]  # something goes on printing: the next piece gets a trace of it
            return b""
        before, mark, behind = data.partition(self._mark)
        if mark:
            self._missing.discard(stream)
        else:
            # The mark may have begun.
            start = data.find(b"\0", max(0, len(data) - len(self._mark) + 1))
            before, behind = (data, b"") if start < 0 else (data[:start], data[start:])
        if behind:
            self._held[stream] = behind
        return before
