"""Tracks whether the disk has room, shared by all writers, so that a full disk refuses immediately."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import structlog
from prometheus_client import Gauge

from headrace.errors import DiskFull
from services.memory.storage.files.disk import disk_errors
from services.runtime.clock import monotonic_s
from services.runtime.files.disk import make_full_error

if TYPE_CHECKING:
    from pathlib import Path

PROBE_S = 1.0
"""Interval between checks for room while the disk is full."""

PROBE_BYTES = 1 << 20
"""Room at which the state ends; with less, it would begin again at the next append."""

_PROBE = ".probe"

_FULL = Gauge("headrace_disk_full", "1 while the disk of the chats has no room.")

log = structlog.get_logger()


class DiskRoom:
    """The state of one folder's disk, for any thread; `run_probes` must run as a task."""

    def __init__(self, folder: Path, probe_s: float = PROBE_S) -> None:
        self._folder = folder
        self._probe_s = probe_s
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._full_since_s: float | None = None
        _FULL.set(0)

    @property
    def is_full(self) -> bool:
        return self._full_since_s is not None

    def check(self) -> None:
        """Raise DiskFull while there is no room."""
        if self.is_full:
            raise make_full_error("anything new")

    @contextmanager
    def noting(self) -> Generator[None]:
        """Enter the state on a DiskFull, which is raised again."""
        try:
            yield
        except DiskFull:
            if not self.is_full:
                self._full_since_s = monotonic_s()
                _FULL.set(1)
                log.error("disk full", folder=str(self._folder))
                self._loop.call_soon_threadsafe(self._wake.set)
            raise

    @contextmanager
    def writing(self, chat_id: str) -> Generator[None]:
        """Refuse the block while there is no room, and raise its disk errors as HeadraceErrors."""
        self.check()
        with self.noting(), disk_errors(chat_id):
            yield

    async def run_probes(self) -> None:
        """Leave the state once there is room again; runs until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._full_since_s is not None:
                await asyncio.sleep(self._probe_s)
                if await asyncio.to_thread(self._has_room):
                    log.warning("disk has room again", full_s=round(monotonic_s() - self._full_since_s, 1))
                    self._full_since_s = None
                    _FULL.set(0)

    def _has_room(self) -> bool:
        """Return whether a new file of PROBE_BYTES can be created, which also needs a name and an inode."""
        path = self._folder / _PROBE
        try:
            try:
                with open(path, "wb") as file:
                    os.posix_fallocate(file.fileno(), 0, PROBE_BYTES)
                    os.fsync(file.fileno())
            finally:
                path.unlink(missing_ok=True)
        except OSError:
            return False
        return True
