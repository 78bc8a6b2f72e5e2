"""Tells readers what changes in gates: engines report which gates a commit has changed, and each is read once for all.

A reader who falls behind, or may have missed something, is to list again; so nothing grows and nothing is missed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from services.memory.storage.gates.query import GateQuery
    from services.memory.storage.gates.rows import GateChange, GateEntry

GateKey: TypeAlias = tuple[str, str | None]
"""Run and id; None: all gates of the run."""

FindGates: TypeAlias = Callable[[Collection[GateKey]], Awaitable["list[GateEntry]"]]

WAITING_MAX = 1000
"""Changed gates that wait to be read, or for one reader; with more, readers list again."""


class GateReader:
    """What one reader is to be told, used on the event loop only."""

    def __init__(self, query: GateQuery) -> None:
        self.query = query
        self.must_list = True
        """Whether all gates that wait are to be listed, as changes may have been missed."""
        self.is_closed = False
        self._entries: dict[GateKey, GateEntry] = {}
        self._wake = asyncio.Event()

    def begin_list(self) -> None:
        """Keep changes from now on: what is listed after this call and what is taken have everything."""
        self.must_list = False
        self._entries.clear()

    async def take(self) -> list[GateEntry]:
        """Wait for changes and return gates as they stand; none where the reader must list, or is closed."""
        while not (self._entries or self.must_list or self.is_closed):
            self._wake.clear()
            await self._wake.wait()
        entries, self._entries = self._entries, {}
        return list(entries.values())

    def put(self, entry: GateEntry) -> None:
        if self.must_list or not self.query.concerns(entry):
            return
        key = (entry.run_id, entry.gate_id)
        self._entries.pop(key, None)  # it is told in the order of the last changes
        self._entries[key] = entry
        if len(self._entries) > WAITING_MAX:
            self.list_again()
        self._wake.set()

    def list_again(self) -> None:
        self.must_list = True
        self._entries.clear()
        self._wake.set()

    def close(self) -> None:
        self.is_closed = True
        self._wake.set()


class GateWatch:
    """All readers of a store; `run_reads` is its task."""

    def __init__(self) -> None:
        self._readers: dict[GateReader, None] = {}
        """In the order in which they came, which is that in which they are told."""
        self._changed: dict[GateKey, None] = {}
        self._wake = asyncio.Event()
        self._is_closed = False

    @contextmanager
    def reading(self, query: GateQuery) -> Generator[GateReader]:
        reader = GateReader(query)
        if self._is_closed:
            reader.close()
        self._readers[reader] = None
        try:
            yield reader
        finally:
            del self._readers[reader]

    def report(self, keys: Collection[GateKey]) -> None:
        """Note gates that a commit has changed, after it."""
        if not self._readers:
            return
        if len(self._changed) + len(keys) > WAITING_MAX:
            self.report_loss()
            return
        self._changed |= dict.fromkeys(keys)
        self._wake.set()

    def report_change(self, change: GateChange) -> None:
        if change and self._readers:
            changed = (*change.opened, *change.updates, *change.closings)
            self.report([(gate.run_id, gate.gate_id) for gate in changed])

    def report_loss(self) -> None:
        """Have all readers list again, as changes may have been missed."""
        self._changed.clear()
        for reader in self._readers:
            reader.list_again()

    async def close(self) -> None:
        """End all readers, as the service stops."""
        self._is_closed = True
        for reader in self._readers:
            reader.close()

    async def run_reads(self, find: FindGates) -> None:
        """Read what has changed until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            changed, self._changed = self._changed, {}
            if not changed or not self._readers:
                continue
            try:
                entries = await find(changed)
            except HeadraceError:  # who lists again is told why, or gets what is there by then
                self.report_loss()
                continue
            for entry in entries:
                for reader in self._readers:
                    reader.put(entry)
