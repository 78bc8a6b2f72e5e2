"""The audit log of a scripted memory: the real RPCs over a list."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from services.memory.storage.audit import AUDIT_TENANT, NO_HEAD, AuditTrail, Head, chain_records, parse_head
from services.runtime.clock import now_ms


class ListedAudit:
    def __init__(self) -> None:
        self._lines: list[str] = []

    async def append(self, tenant: str, records: Sequence[Mapping[str, Any]]) -> None:
        lines, _ = chain_records(await self.read_head(tenant), records)
        self._lines += lines

    async def read_all(self, tenant: str) -> AsyncGenerator[list[str]]:
        yield self._lines

    async def read_behind(self, tenant: str, seq: int, count: int) -> list[str]:
        return self._lines[seq : seq + count]

    async def read_newest(self, tenant: str, before_seq: int, count: int) -> list[str]:
        return self._lines[: before_seq - 1][::-1][:count]

    async def read_head(self, tenant: str) -> Head:
        return (parse_head(self._lines[-1]) if self._lines else None) or NO_HEAD

    async def forget(self, before_at: int) -> None:
        pass


def make_audit_trail() -> AuditTrail:
    return AuditTrail(ListedAudit(), now_ms, AUDIT_TENANT)
