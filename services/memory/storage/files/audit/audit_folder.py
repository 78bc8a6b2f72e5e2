"""The audit logs of a folder's tenants."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from services.memory.storage.audit.store import Head
from services.memory.storage.files.audit.segments import Segments
from services.runtime.clock import now_ms
from services.runtime.files.disk import disk_errors

if TYPE_CHECKING:
    from services.memory.storage.files.disk_room import DiskRoom

T = TypeVar("T")

OPEN_MAX = 256
"""Tenants whose logs stay open."""


class AuditFolder:
    """Logs in `<SHA-256 of the tenant>/`, opened when they are asked for."""

    def __init__(self, folder: Path, room: DiskRoom, clock: Callable[[], int] = now_ms) -> None:
        self._folder = folder
        self._room = room
        self._clock = clock
        self._lock = Lock()
        self._open: dict[str, Segments] = {}

    async def append(self, tenant: str, records: Sequence[Mapping[str, Any]]) -> None:
        await self._run(_get_name(tenant), lambda log: log.append(records), is_write=True)

    async def read_all(self, tenant: str) -> AsyncGenerator[list[str]]:
        name = _get_name(tenant)
        for first in await self._run(name, lambda log: log.list_segments()):
            yield await self._run(name, partial(Segments.read_segment, first=first))

    async def read_behind(self, tenant: str, seq: int, count: int) -> list[str]:
        return await self._run(_get_name(tenant), lambda log: log.read_behind(seq, count))

    async def read_newest(self, tenant: str, before_seq: int, count: int) -> list[str]:
        return await self._run(_get_name(tenant), lambda log: log.read_newest(before_seq, count))

    async def read_head(self, tenant: str) -> Head:
        return await self._run(_get_name(tenant), lambda log: log.head)

    async def forget(self, before_at: int) -> None:
        names = await asyncio.to_thread(lambda: sorted(path.name for path in self._folder.glob("*/")))
        problems: list[Exception] = []
        for name in names:
            try:
                await self._run(name, lambda log: log.forget(before_at, self._clock()), is_write=True)
            except Exception as problem:  # of one tenant's files, which are no other's
                problems.append(problem)
        if problems:
            raise ExceptionGroup("some audit logs keep what is older", problems)

    async def _run(self, name: str, do: Callable[[Segments], T], *, is_write: bool = False) -> T:
        return await asyncio.to_thread(self._run_locked, name, do, is_write=is_write)

    def _run_locked(self, name: str, do: Callable[[Segments], T], *, is_write: bool) -> T:
        with self._lock, self._room.noting(), disk_errors("the audit log", ""):
            if is_write:
                self._room.check()
            log = self._open.pop(name, None) or Segments(self._folder / name)
            self._open[name] = log
            if len(self._open) > OPEN_MAX:
                del self._open[next(iter(self._open))]
            return do(log)


def _get_name(tenant: str) -> str:
    return hashlib.sha256(tenant.encode("utf-8", "surrogatepass")).hexdigest()
