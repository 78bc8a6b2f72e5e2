"""Texts of `headrace up` for its terminal: shown if somebody reads them, and never a condition of what it does."""

from __future__ import annotations

import io
import os
import select
import sys

WAIT_MS = 200
"""Time for a reader of a full pipe or terminal to make room; then the rest of a text is dropped."""


def show_text(text: str, *, on_stdout: bool = False) -> None:
    """Write a line; a file that is closed or full, or whose reader has gone or stopped, loses it."""
    show_bytes(f"{text}\n".encode(errors="replace"), on_stdout=on_stdout)


def show_bytes(data: bytes, *, on_stdout: bool = False) -> None:
    # None if it was closed at the start; its number may be another file's now.
    file = sys.stdout if on_stdout else sys.stderr
    if file is None:
        return
    rest = memoryview(data)
    try:
        fd = file.fileno()
        poll = select.poll()
        poll.register(fd, select.POLLOUT)
        # What is ready takes so many bytes without blocking.
        while rest and any(event & select.POLLOUT for _, event in poll.poll(WAIT_MS)):
            rest = rest[os.write(fd, rest[: select.PIPE_BUF]) :]
    except (OSError, ValueError, io.UnsupportedOperation):  # closed since, or not a file of the system
        return
