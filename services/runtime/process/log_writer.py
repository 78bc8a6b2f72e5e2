"""Writes log lines to a file descriptor, and neither raises nor blocks.

A full disk or a reader that is gone is no reason to fail what logs. Lines that cannot be written are dropped, and
counted in a line of their own once there is room.
"""

from __future__ import annotations

import os
import select
import stat
import time
from collections.abc import Callable

WAITING_BYTES_MAX = 1 << 20
"""Bytes that wait for the reader of a pipe or terminal; further lines are dropped."""

CLOSE_S = 1.0
"""Time in which `close` lets a reader take what waits."""


class LogWriter:
    """The file of structlog's loggers, which hold a lock around `write` and `flush`."""

    def __init__(self, fd: int, make_notice: Callable[[int], str]) -> None:
        """Write to `fd`; `make_notice` returns the line that reports how many lines were lost since the start."""
        self._fd = fd
        self._make_notice = make_notice
        self._waiting = bytearray()
        self._lost = self._reported = 0
        self._is_torn = False
        """Whether the last line written has no end yet."""
        self._poll = None if stat.S_ISREG(os.fstat(fd).st_mode) else select.poll()
        if self._poll is not None:
            self._poll.register(fd, select.POLLOUT)

    def write(self, text: str) -> int:
        line = text.encode(errors="backslashreplace")
        if len(self._waiting) + len(line) > WAITING_BYTES_MAX:
            self._lost += 1
        else:
            self._waiting += line
        return len(text)

    def flush(self) -> None:
        """Write what the descriptor takes now."""
        while self._waiting and (self._poll is None or self._poll.poll(0)):
            # A pipe or terminal that is ready takes so many bytes without blocking.
            size = len(self._waiting) if self._poll is None else select.PIPE_BUF
            try:
                written = os.write(self._fd, memoryview(self._waiting)[:size].tobytes())
            except BlockingIOError:
                return
            except OSError:
                self._drop_waiting()
                return
            self._is_torn = self._waiting[written - 1] != ord("\n")
            del self._waiting[:written]
            if not self._waiting and self._lost > self._reported:
                self._reported = self._lost
                self.write(self._make_notice(self._lost))

    def close(self) -> None:
        """Wait for CLOSE_S at most until everything is written."""
        until_s = time.monotonic() + CLOSE_S
        self.flush()
        while self._waiting and time.monotonic() < until_s:
            time.sleep(0.01)
            self.flush()

    def _drop_waiting(self) -> None:
        # A line break that stands first only ends a line that was torn before.
        self._lost += self._waiting.count(b"\n") - self._waiting.startswith(b"\n")
        self._waiting.clear()
        if self._is_torn:
            self._waiting += b"\n"
