"""Lines that a store refuses: stored as soon as it takes them, in order, before those that come later."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from headrace.errors import Overloaded
from services.memory.storage.audit import trail
from services.memory.storage.audit.store import NO_HEAD, Head
from services.memory.storage.audit.trail import AuditTrail


class RefusingStore:
    """A store that refuses while it is away."""

    def __init__(self) -> None:
        self.is_away = False
        self.lines: list[Mapping[str, Any]] = []
        self.is_stored = asyncio.Event()

    async def append(self, tenant: str, records: Sequence[Mapping[str, Any]]) -> None:
        if self.is_away:
            raise Overloaded("away")
        self.lines += records
        self.is_stored.set()

    async def read_all(self, tenant: str) -> AsyncGenerator[list[str]]:
        for line in self.lines:
            yield [str(line)]

    async def read_behind(self, tenant: str, seq: int, count: int) -> list[str]:
        return []

    async def read_newest(self, tenant: str, before_seq: int, count: int) -> list[str]:
        return []

    async def read_head(self, tenant: str) -> Head:
        return NO_HEAD

    async def forget(self, before_at: int) -> None:
        pass


async def test_a_line_that_is_refused_is_stored_later_and_before_the_next() -> None:
    store = RefusingStore()
    audit = AuditTrail(store, lambda: 7, "default")
    retrying = asyncio.create_task(audit.run_retries())
    store.is_away = True
    await audit.record_of("acme", "key.made", keyId="1")
    await audit.record_of("", "sign_in.refused", count=2)
    store.is_away = False
    await audit.record_of("acme", "key.made", keyId="3", empty="")
    async with asyncio.timeout(30):
        while len(store.lines) < 3:
            store.is_stored.clear()
            await store.is_stored.wait()
    retrying.cancel()
    assert store.lines == [
        {"at": 7, "event": "key.made", "tenant": "acme", "keyId": "1"},
        {"at": 7, "event": "sign_in.refused", "tenant": "default", "count": 2},
        {"at": 7, "event": "key.made", "tenant": "acme", "keyId": "3"},
    ]


async def test_what_waits_has_a_bound() -> None:
    store = RefusingStore()
    audit = AuditTrail(store, lambda: 7, "default")
    store.is_away = True
    for _ in range(trail.WAITING_MAX + 5):
        await audit.record_of("acme", "key.made")
    store.is_away = False
    retrying = asyncio.create_task(audit.run_retries())
    async with asyncio.timeout(30):
        while len(store.lines) < trail.WAITING_MAX:
            store.is_stored.clear()
            await store.is_stored.wait()
    retrying.cancel()
    assert len(store.lines) == trail.WAITING_MAX
