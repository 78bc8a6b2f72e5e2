"""Flow control of what the peer sends on one stream: how much it may send, and when it may send more.

https://www.rfc-editor.org/rfc/rfc9113#section-5.2
"""

from __future__ import annotations

from services.runtime.http2 import frames, limits
from services.runtime.http2.outgoing import FrameWriter


class ReceiveWindow:
    """Belongs to one stream."""

    __slots__ = ("_left_bytes", "_out", "_owed_bytes", "_stream_id", "is_open", "unread_bytes")

    def __init__(self, out: FrameWriter, stream_id: int) -> None:
        self.is_open = True
        """Whether the peer may send at all; a window that is shut is never extended."""
        self.unread_bytes = 0
        """Bytes that have come and that nobody has read yet."""
        self._out = out
        self._stream_id = stream_id
        self._left_bytes = limits.WINDOW_BYTES
        self._owed_bytes = 0
        """Bytes that were read and that the window has not been extended by yet."""

    def count_received(self, size: int) -> bool:
        """Count `size` bytes that have come, padding included; False if the peer had no right to so many."""
        self._left_bytes -= size
        return self._left_bytes >= 0

    def release_read(self, size: int) -> None:
        self.unread_bytes -= size
        self.return_bytes(size)

    def return_bytes(self, size: int) -> None:
        """Give `size` bytes back to the peer, which is told once they are half of the window."""
        self._owed_bytes += size
        if self._owed_bytes >= limits.WINDOW_BYTES // 2 and self.is_open:
            self._left_bytes += self._owed_bytes
            self._out.write(frames.encode_window_update(self._stream_id, self._owed_bytes))
            self._owed_bytes = 0
