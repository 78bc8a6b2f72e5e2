"""Finds the mark that ends an output, however the bytes are cut."""

from __future__ import annotations

from services.tools.sandbox.supervised_command import STREAMS, Stream


class MarkedOutput:
    """Output up to the mark; bytes behind it stay in `held` for the next code."""

    def __init__(self, token: str, held: dict[Stream, bytes]) -> None:
        self.text = f"\0{token}\0"
        self._mark = self.text.encode()
        self._held = held
        self._missing = set(STREAMS.values())

    @property
    def is_complete(self) -> bool:
        return not self._missing

    def take_output(self, stream: Stream, data: bytes) -> bytes:
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
            # The mark may begin in these bytes.
            start = data.find(b"\0", max(0, len(data) - len(self._mark) + 1))
            before, behind = (data, b"") if start < 0 else (data[:start], data[start:])
        if behind:
            self._held[stream] = behind
        return before
