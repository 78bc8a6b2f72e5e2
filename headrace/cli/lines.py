"""Standard input, line by line, beside everything else that a loop does."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from types import TracebackType

READ_BYTES = 65536


class Lines:
    """Owns a file descriptor's reading side within its `with`; on the running loop."""

    def __init__(self, fd: int = 0) -> None:
        self._fd = fd
        self._lines: deque[str] = deque()
        self._rest = b""
        self._is_over = False
        self._came = asyncio.Event()

    def __enter__(self) -> Lines:
        try:
            asyncio.get_running_loop().add_reader(self._fd, self._read)
        except PermissionError:
            # A file (epoll takes none): it never makes anybody wait, so it is read as a whole.
            while not self._is_over:
                self._read()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop()

    async def next(self) -> str | None:
        """The next line without its end; None: there is no more."""
        while not self._lines and not self._is_over:
            self._came.clear()
            await self._came.wait()
        return self._lines.popleft() if self._lines else None

    def _read(self) -> None:
        data = os.read(self._fd, READ_BYTES)
        *whole, self._rest = (self._rest + data).split(b"\n")
        if not data:
            whole, self._rest, self._is_over = [*whole, *filter(None, [self._rest])], b"", True
            self._stop()
        self._lines.extend(line.decode(errors="replace").removesuffix("\r") for line in whole)
        self._came.set()

    def _stop(self) -> None:
        asyncio.get_running_loop().remove_reader(self._fd)
