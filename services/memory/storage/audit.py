"""The audit log: actions of operators and admins, in lines with a hash chain that proves completeness."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import structlog
from prometheus_client import Counter, Gauge

from headrace.errors import HeadraceError
from headrace.hash_chain import FIRST, FORGOTTEN, chain_line

if TYPE_CHECKING:
    from services.runtime.auth.identity import Identity


AUDIT_TENANT = "default"

WAITING_MAX = 10_000
"""Maximum records that wait for a store that refuses them; further ones are lost, and counted."""

RETRY_S = 1.0

_WAITING = Gauge("headrace_audit_lines_waiting", "Lines of the audit log that the store has refused and gets again.")
_LOST = Counter("headrace_audit_lines_lost", "Lines of the audit log that were lost: the store was away for too long.")

log = structlog.get_logger()


class AuditTrail:
    """The audit logs of a store; `run_retries` must run as a task."""

    def __init__(self, store: AuditStore, clock: Callable[[], int], own_tenant: str) -> None:
        """`clock` returns Unix milliseconds; the log of `own_tenant` also holds records of no tenant."""
        self.store = store
        self._own_tenant = own_tenant
        self._clock = clock
        self._waiting: deque[tuple[str, dict[str, Any]]] = deque()
        self._wake = asyncio.Event()

    async def record(self, event: str, who: Identity, **details: Any) -> None:
        """Append a record of an action by `who`; on disk on return, unless the store refuses it."""
        await self.record_of(who.tenant, event, who.user, who.credential, **details)

    async def record_of(self, tenant: str, event: str, by: str = "", credential: str = "", **details: Any) -> None:
        """Append a line to the log of a tenant, or for "" to the own tenant's.

        `details` are texts, integers and booleans; empty ones are left out.
        """
        tenant = tenant or self._own_tenant
        given = {"by": by, "credential": credential} | details
        line = {"at": self._clock(), "event": event, "tenant": tenant}
        line |= {name: value for name, value in given.items() if value not in ("", None)}
        if self._waiting:  # after the records already waiting
            self._put_off(tenant, line)
            return
        try:
            await self.store.append(tenant, [line])
        except HeadraceError as error:
            log.error("audit line not stored", audit_event=event, reason=error.reason)
            self._put_off(tenant, line)

    async def run_retries(self) -> None:
        """Store refused records, in order, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                await asyncio.sleep(RETRY_S)
                await self._store_waiting()

    async def _store_waiting(self) -> None:
        while self._waiting:
            tenant, line = self._waiting[0]
            try:
                await self.store.append(tenant, [line])
            except HeadraceError:
                return
            self._waiting.popleft()
            _WAITING.set(len(self._waiting))

    def _put_off(self, tenant: str, line: dict[str, Any]) -> None:
        if len(self._waiting) >= WAITING_MAX:
            _LOST.inc()
            log.critical("audit line lost", audit_event=line["event"])
            return
        self._waiting.append((tenant, line))
        _WAITING.set(len(self._waiting))
        self._wake.set()


Head: TypeAlias = tuple[int, str]
"""Number and hash of a log's last line."""

NO_HEAD: Head = (0, FIRST)


class AuditStore(Protocol):
    async def append(self, tenant: str, records: Sequence[Mapping[str, Any]]) -> None:
        """Append a line for each record, all or none, on disk on return. Raises HeadraceError."""
        ...

    def read_all(self, tenant: str) -> AsyncGenerator[list[str]]:
        """Read the stored log in portions, without checking its lines."""
        ...

    async def read_behind(self, tenant: str, seq: int, count: int) -> list[str]:
        """Read up to `count` lines after a number, in order."""
        ...

    async def read_newest(self, tenant: str, before_seq: int, count: int) -> list[str]:
        """Read up to `count` lines before a number, newest first."""
        ...

    async def read_head(self, tenant: str) -> Head: ...

    async def forget(self, before_at: int) -> None:
        """Delete older lines of all tenants, as far as the store can, and record that in their logs."""
        ...


def chain_records(head: Head, records: Iterable[Mapping[str, Any]]) -> tuple[list[str], Head]:
    """Return the lines for records appended after `head`, and the new head."""
    seq, previous = head
    lines: list[str] = []
    for record in records:
        seq += 1
        line, previous = chain_line(previous, {"seq": seq} | dict(record))
        lines.append(line)
    return lines, (seq, previous)


def make_forgotten(at: int, before_seq: int) -> dict[str, Any]:
    """Create the record of a deletion; number `before_seq` is the first line that is kept."""
    return {"at": at, "event": FORGOTTEN, "before": before_seq}


def parse_head(line: str) -> Head | None:
    """Return a line's number and hash; None if it is invalid."""
    try:
        record = json.loads(line)
        seq, own = record["seq"], record["hash"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return (seq, own) if type(seq) is int and type(own) is str else None
