"""Flow control of a stream's input. https://www.rfc-editor.org/rfc/rfc9113#section-5.2"""

from __future__ import annotations

from services.runtime.http2 import limits
from services.runtime.http2.codec import frames
from services.runtime.http2.outgoing import FrameWriter


class ReceiveWindow:
    __slots__ = ("_left_bytes", "_out", "_owed_bytes", "_stream_id", "is_open", "unread_bytes")

    def __init__(self, out: FrameWriter, stream_id: int) -> None:
        self.is_open = True
        """Whether the window is still extended."""
        self.unread_bytes = 0
        self._out = out
        self._stream_id = stream_id
        self._left_bytes = limits.WINDOW_BYTES
        self._owed_bytes = 0
        """Bytes read and not yet given back."""

    def count_received(self, size: int) -> bool:
        """Count bytes, padding included; False if the peer was not allowed so many."""
        self._left_bytes -= size
        return self._left_bytes >= 0

    def release_read(self, size: int) -> None:
        self.unread_bytes -= size
        self.return_bytes(size)

    def return_bytes(self, size: int) -> None:
        """Give bytes back; the peer is told once they are half of the window."""
        self._owed_bytes += size
        if self._owed_bytes >= limits.WINDOW_BYTES // 2 and self.is_open:
            self._left_bytes += self._owed_bytes
            self._out.write(frames.encode_window_update(self._stream_id, self._owed_bytes))
            self._owed_bytes = 0
