"""A tenant's audit log in files: `<number of its first line>.jsonl`, each for some thousand lines, and `head.json` with
the number and hash of the last line. Everything here blocks.

A line is on disk before the head counts it, so a kill in between leaves an older head. A line cut by a kill was never
acknowledged, and is removed at the next start.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from services.memory.storage.audit import NO_HEAD, Head, chain_records, make_forgotten, parse_head
from services.runtime.clock import now_ms
from services.runtime.files.disk import disk_errors, make_folder, sync_folder, write_whole
from services.runtime.newest import NewestDict

if TYPE_CHECKING:
    from services.memory.storage.files.disk_room import DiskRoom


SEGMENT_LINES_MAX = 2_000

_SUFFIX = ".jsonl"

log = structlog.get_logger()


class Segments:
    """The log of one tenant, used by one thread at a time."""

    def __init__(
        self, folder: Path, lines_max: int = SEGMENT_LINES_MAX, sync: Callable[[int], None] = os.fsync
    ) -> None:
        """`lines_max` is the number of lines of a file. Raises OSError."""
        self._folder = folder
        self._lines_max = lines_max
        self._sync = sync
        make_folder(folder)
        self._firsts = sorted(int(path.stem) for path in folder.glob(f"*{_SUFFIX}") if path.stem.isdecimal())
        self._head = self._mend()

    @property
    def head(self) -> Head:
        return self._head

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        lines, head = chain_records(self._head, records)
        first = self._firsts[-1] if self._firsts else 0
        is_new = not self._firsts or self._head[0] - first + 1 >= self._lines_max
        path = self._get_path(self._head[0] + 1 if is_new else first)
        self._append_data(path, "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass"), is_new=is_new)
        if is_new:
            self._firsts.append(self._head[0] + 1)
        self._head = head
        try:
            write_whole(self._folder / "head.json", json.dumps({"seq": self._head[0], "hash": self._head[1]}).encode())
        except OSError as error:  # the lines are stored: it follows with the next ones
            log.warning("head of the audit log not stored", error=str(error))

    def list_segments(self) -> list[int]:
        return list(self._firsts)

    def read_segment(self, first: int) -> list[str]:
        """Read the lines of a file; empty if it was deleted."""
        return self._read_segment(first) if first in self._firsts else []

    def read_behind(self, seq: int, count: int) -> list[str]:
        found: list[str] = []
        for index, first in enumerate(self._firsts):
            if index + 1 < len(self._firsts) and self._firsts[index + 1] <= seq + 1:
                continue
            found += (line for line in self._read_segment(first) if (parse_head(line) or NO_HEAD)[0] > seq)
            if len(found) >= count:
                break
        return found[:count]

    def read_newest(self, before_seq: int, count: int) -> list[str]:
        found: list[str] = []
        for first in reversed(self._firsts):
            if first >= before_seq:
                continue
            lines = self._read_segment(first)
            found += (line for line in reversed(lines) if 0 < (parse_head(line) or NO_HEAD)[0] < before_seq)
            if len(found) >= count:
                break
        return found[:count]

    def forget(self, before_at: int, now: int) -> None:
        """Delete files with only older lines; the last file is kept."""
        gone = 0
        for first in self._firsts[:-1]:
            lines = self._read_segment(first)
            if lines and _read_time(lines[-1]) >= before_at:
                break
            gone += 1
        if gone:
            self.append([make_forgotten(now, self._firsts[gone])])  # said before it is so
            for first in self._firsts[:gone]:
                self._get_path(first).unlink(missing_ok=True)
            del self._firsts[:gone]

    def _append_data(self, path: Path, data: bytes, *, is_new: bool) -> None:
        """Append all of `data`, on disk on return, or none of it. Raises OSError."""
        with open(path, "ab", buffering=0) as file:
            end = file.tell()
            try:
                if file.write(data) != len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                self._sync(file.fileno())
                if is_new:
                    sync_folder(self._folder, self._sync)
            except OSError:
                os.ftruncate(file.fileno(), end)
                if is_new:
                    path.unlink(missing_ok=True)
                raise

    def _mend(self) -> Head:
        """Remove a line cut by a kill, and return the head."""
        head = NO_HEAD
        with suppress(FileNotFoundError, ValueError, KeyError, TypeError):
            found = json.loads((self._folder / "head.json").read_bytes())
            head = int(found["seq"]), str(found["hash"])
        if not self._firsts:
            return head
        path = self._get_path(self._firsts[-1])
        data = path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            with open(path, "r+b") as file:
                file.truncate(whole)
                os.fsync(file.fileno())
        # The last file may have been made, and nothing more.
        texts = (self._read_segment(first) for first in reversed(self._firsts))
        last = next((parse_head(lines[-1]) for lines in texts if lines), None)
        # A shortened or changed log continues from its end; verify reports it.
        return last if last is not None and last[0] >= head[0] else head

    def _read_segment(self, first: int) -> list[str]:
        text = self._get_path(first).read_bytes().decode("utf-8", "replace")
        return text.removesuffix("\n").split("\n") if text else []

    def _get_path(self, first: int) -> Path:
        return self._folder / f"{first:016d}{_SUFFIX}"


def _read_time(line: str) -> int:
    try:
        return int(json.loads(line)["at"])
    except (ValueError, KeyError, TypeError):
        return 0


T = TypeVar("T")

OPEN_MAX = 256
"""Maximum tenants with open logs."""


class AuditFolder:
    """Logs in `<SHA-256 of the tenant>/`, opened on demand."""

    def __init__(self, folder: Path, room: DiskRoom, clock: Callable[[], int] = now_ms) -> None:
        self._folder = folder
        self._room = room
        self._clock = clock
        self._lock = Lock()
        self._open: NewestDict[str, Segments] = NewestDict(OPEN_MAX)

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
            raise ExceptionGroup("some audit logs still contain expired lines", problems)

    async def _run(self, name: str, do: Callable[[Segments], T], *, is_write: bool = False) -> T:
        return await asyncio.to_thread(self._run_locked, name, do, is_write=is_write)

    def _run_locked(self, name: str, do: Callable[[Segments], T], *, is_write: bool) -> T:
        with self._lock, self._room.noting(), disk_errors("the audit log", ""):
            if is_write:
                self._room.check()
            log = self._open[name] = self._open.get(name) or Segments(self._folder / name)
            return do(log)


def _get_name(tenant: str) -> str:
    return hashlib.sha256(tenant.encode("utf-8", "surrogatepass")).hexdigest()
