"""Kinds of work that share a database. Each except runs has few of its connections, so that a run always finds one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from enum import Enum

from headrace.errors import QueueFull
from services.runtime.auth import identity
from services.runtime.capacity import RETRY_AFTER_S, Capacity


class Work(Enum):
    RUN = "run"
    LIST = "list"
    EXPORT = "export"
    MAINTENANCE = "maintenance"


WORK: ContextVar[Work] = ContextVar("WORK", default=Work.RUN)
"""Kind of the current task's work."""

_LISTS = (
    *("Search", "GetUsage", "ListChats", "ListFacts", "ListGates", "ListGrants", "ListRuns", "ListSchedules"),
    *("ListAudit", "ListDeliveries", "ListKeys", "ListSuspendedUsers", "ListWebhooks"),
)
_EXPORTS = ("ExportAudit", "ExportFacts", "ExportGates", "ReadStoredData")
_ERASURE = ("EraseStored", "FinishErasure", "ListErasedRuns")

_KINDS = {name: kind for kind, names in zip([*Work][1:], (_LISTS, _EXPORTS, _ERASURE), strict=True) for name in names}
"""Kinds of RPCs by name; all others are runs' or read a single thing."""

WAITING_MAX = 32
"""Maximum requests of a tenant that wait for a connection of one kind."""

WAIT_S = 2.0
"""How long they wait."""


def note_work(method: str) -> None:
    """Set the kind of work of an RPC's task, by the RPC's path."""
    WORK.set(_KINDS.get(method.rpartition("/")[2], Work.RUN))


class _Share:
    """Connections of one kind, of which a tenant may have as many as remain free."""

    def __init__(self, size: int, timeout_s: float | None, *, is_background: bool = False) -> None:
        self.timeout_s = timeout_s
        self.capacity = Capacity(size, is_shared=True)
        self._is_background = is_background
        self._waiting: deque[tuple[str, asyncio.Future[None]]] = deque()

    async def acquire(self, tenant: str) -> None:
        if self.capacity.has_room_for(tenant):
            self.capacity.acquire(tenant)
            return
        if not self._is_background and sum(waiter[0] == tenant for waiter in self._waiting) >= WAITING_MAX:
            raise _make_refusal()
        waiter = tenant, asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            async with asyncio.timeout(None if self._is_background else WAIT_S):
                await waiter[1]
        except BaseException as error:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            else:  # it was granted in the meantime
                self.release(tenant)
            if isinstance(error, TimeoutError):
                raise _make_refusal() from error
            raise

    def release(self, tenant: str) -> None:
        self.capacity.release(tenant)
        for waiter in [*self._waiting]:
            # One that was cancelled leaves the queue when its task runs next.
            if not waiter[1].done() and self.capacity.has_room_for(waiter[0]):
                self._waiting.remove(waiter)
                self.capacity.acquire(waiter[0])
                waiter[1].set_result(None)


def _make_refusal() -> QueueFull:
    return QueueFull(
        "the tenant has as many such requests under way as it may; try again later", retry_after_s=RETRY_AFTER_S
    )


class Shares:
    """The connections that each kind of work may use at the same time."""

    def __init__(self, connections_max: int, statement_timeout_s: float) -> None:
        self._shares = {
            Work.LIST: _Share(max(1, connections_max * 3 // 10), statement_timeout_s / 2),
            Work.EXPORT: _Share(max(1, connections_max // 5), statement_timeout_s),
            Work.MAINTENANCE: _Share(1, None, is_background=True),
        }

    @asynccontextmanager
    async def using_one(self) -> AsyncGenerator[float | None]:
        """Use a connection of the current task's kind inside the block; yield its time limit, None if it has none.

        Raises:
            QueueFull: The tenant's share is used up.
        """
        share = self._shares.get(WORK.get())
        if share is None:
            yield None
            return
        tenant = identity.current_tenant()
        await share.acquire(tenant)
        kind = WORK.set(Work.RUN)  # loading a key inside the block must not wait for the block's own end
        try:
            yield share.timeout_s
        finally:
            WORK.reset(kind)
            share.release(tenant)
