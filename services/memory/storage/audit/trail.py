"""Deeds on their way to the audit log: what the store refuses now is stored as soon as it takes it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import structlog
from prometheus_client import Counter, Gauge

from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from services.memory.storage.audit.store import AuditStore
    from services.runtime.auth.identity import Identity

AUDIT_TENANT = "default"

WAITING_MAX = 10_000
"""Deeds that wait for a store that refuses them; the next ones are lost, and counted."""

RETRY_S = 1.0

_WAITING = Gauge("headrace_audit_lines_waiting", "Lines of the audit log that the store has refused and gets again.")
_LOST = Counter("headrace_audit_lines_lost", "Lines of the audit log that were lost: the store was away for too long.")

log = structlog.get_logger()


class AuditTrail:
    """The audit logs of a store; `run_retries` is its task."""

    def __init__(self, store: AuditStore, clock: Callable[[], int], own_tenant: str) -> None:
        """`clock` tells Unix milliseconds; the log of `own_tenant` has what is no tenant's."""
        self.store = store
        self._own_tenant = own_tenant
        self._clock = clock
        self._waiting: deque[tuple[str, dict[str, Any]]] = deque()
        self._wake = asyncio.Event()

    async def record(self, event: str, who: Identity, **details: Any) -> None:
        """Append that `who` has done something; on disk when this returns, but where the store refuses it."""
        await self.record_of(who.tenant, event, who.user, who.credential, **details)

    async def record_of(self, tenant: str, event: str, by: str = "", credential: str = "", **details: Any) -> None:
        """Append a line to the log of a tenant, empty: what is no tenant's; `details` are texts, whole numbers and
        booleans, of which empty ones are left out."""
        tenant = tenant or self._own_tenant
        given = {"by": by, "credential": credential} | details
        line = {"at": self._clock(), "event": event, "tenant": tenant}
        line |= {name: value for name, value in given.items() if value not in ("", None)}
        if self._waiting:  # behind those that came before
            self._put_off(tenant, line)
            return
        try:
            await self.store.append(tenant, [line])
        except HeadraceError as error:
            log.error("audit line not stored", audit_event=event, reason=error.reason)
            self._put_off(tenant, line)

    async def run_retries(self) -> None:
        """Store what was refused, in order; until cancelled."""
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
