"""Notifies readers of changes in gates: engines report the gates that a commit changed, and each is read once for all
readers.

A reader that falls behind, or may have missed a change, must list again, so that nothing accumulates and nothing is
missed.
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
"""Maximum changed gates waiting to be read, or for one reader; beyond it, readers list again."""


class GateReader:
    """Pending changes of one reader, used on the event loop only."""

    def __init__(self, query: GateQuery) -> None:
        self.query = query
        self.must_list = True
        """Whether the reader must list all waiting gates, because it may have missed changes."""
        self.is_closed = False
        self._entries: dict[GateKey, GateEntry] = {}
        self._wake = asyncio.Event()

    def begin_list(self) -> None:
        """Collect changes from now on; the list read after this call and the collected changes are complete
        together."""
        self.must_list = False
        self._entries.clear()

    async def take(self) -> list[GateEntry]:
        """Wait for changes and return the changed gates; empty if the reader must list, or is closed."""
        while not (self._entries or self.must_list or self.is_closed):
            self._wake.clear()
            await self._wake.wait()
        entries, self._entries = self._entries, {}
        return list(entries.values())

    def put(self, entry: GateEntry) -> None:
        if self.must_list or not self.query.concerns(entry):
            return
        key = (entry.run_id, entry.gate_id)
        self._entries.pop(key, None)  # reinserted, to keep the order of the last changes
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
    """All readers of a store; `run_reads` must run as a task."""

    def __init__(self) -> None:
        self._readers: dict[GateReader, None] = {}
        """Readers in the order in which they came and are notified."""
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
        """Report the gates changed by a commit, after it."""
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
        """Make all readers list again, because changes may have been missed."""
        self._changed.clear()
        for reader in self._readers:
            reader.list_again()

    async def close(self) -> None:
        """End all readers, because the service stops."""
        self._is_closed = True
        for reader in self._readers:
            reader.close()

    async def run_reads(self, find: FindGates) -> None:
        """Read changed gates until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            changed, self._changed = self._changed, {}
            if not changed or not self._readers:
                continue
            try:
                entries = await find(changed)
            except HeadraceError:  # a reader that lists again gets the error, or the current gates
                self.report_loss()
                continue
            for entry in entries:
                for reader in self._readers:
                    reader.put(entry)
