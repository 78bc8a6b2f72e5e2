"""Reads standard input: line by line on an event loop, or all of it as the text that a command needs."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque
from types import TracebackType
from typing import Any

import click

READ_BYTES = 65536


class TextOrInput(click.ParamType[str]):
    """A text, read as UTF-8 as far as possible; `-` is all of standard input."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        del param, ctx
        # Python keeps bytes of an argument that are no text as lone surrogates.
        data = sys.stdin.buffer.read() if value == "-" else str(value).encode(errors="surrogateescape")
        return data.decode("utf-8-sig", "replace")


class InputLines:
    """Reads lines from a file descriptor on the running loop while its `with` block is open."""

    def __init__(self, fd: int = 0) -> None:
        self._fd = fd
        self._lines: deque[str] = deque()
        self._rest = b""
        self._is_over = False
        self._changed = asyncio.Event()

    def __enter__(self) -> InputLines:
        try:
            asyncio.get_running_loop().add_reader(self._fd, self._read)
        except PermissionError:
            # epoll does not accept regular files. Reading one never blocks, so it is read at once.
            while not self._is_over:
                self._read()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop_reading()

    async def read_line(self) -> str | None:
        """Return the next line without its line end; None at the end of input."""
        while not self._lines and not self._is_over:
            self._changed.clear()
            await self._changed.wait()
        return self._lines.popleft() if self._lines else None

    def _read(self) -> None:
        try:
            data = os.read(self._fd, READ_BYTES)
        except OSError:  # EIO: the terminal belongs to a session that is over, and stays ready to be read
            data = b""
        *whole, self._rest = (self._rest + data).split(b"\n")
        if not data:
            whole, self._rest, self._is_over = [*whole, *filter(None, [self._rest])], b"", True
            self._stop_reading()
        self._lines.extend(line.decode(errors="replace").removesuffix("\r") for line in whole)
        self._changed.set()

    def _stop_reading(self) -> None:
        asyncio.get_running_loop().remove_reader(self._fd)
