"""What `headrace up` says: shown if somebody reads it, and never a condition of what it does."""

from __future__ import annotations

import os
import select

STDOUT, STDERR = 1, 2

WAIT_MS = 200
"""Time for a reader of a full pipe or terminal to make room; then the rest of a text is dropped."""


def show_text(text: str, fd: int = STDERR) -> None:
    """Write a line; a file that is closed or full, or whose reader has gone or stopped, loses it."""
    show_bytes(f"{text}\n".encode(errors="replace"), fd)


def show_bytes(data: bytes, fd: int = STDERR) -> None:
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    rest = memoryview(data)
    try:
        # What is ready takes so many bytes without blocking.
        while rest and any(event & select.POLLOUT for _, event in poll.poll(WAIT_MS)):
            rest = rest[os.write(fd, rest[: select.PIPE_BUF]) :]
    except OSError:
        return
