"""The interface of a store of audit logs, one for each tenant, and the form of their lines."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from headrace.hash_chain import FIRST, FORGOTTEN, chain_line

Head: TypeAlias = tuple[int, str]
"""Number and hash of a log's last line."""

NO_HEAD: Head = (0, FIRST)


class AuditStore(Protocol):
    async def append(self, tenant: str, records: Sequence[Mapping[str, Any]]) -> None:
        """Append a line for each record, all or none, on disk when this returns. Raises HeadraceError."""
        ...

    def read_all(self, tenant: str) -> AsyncGenerator[list[str]]:
        """Read the log as it is stored, whatever its lines say, in portions."""
        ...

    async def read_behind(self, tenant: str, seq: int, count: int) -> list[str]:
        """Read up to `count` lines behind a number, in order."""
        ...

    async def read_newest(self, tenant: str, before_seq: int, count: int) -> list[str]:
        """Read up to `count` lines before a number, the newest first."""
        ...

    async def read_head(self, tenant: str) -> Head: ...

    async def forget(self, before_at: int) -> None:
        """Delete lines of all tenants that are older, as far as the store can, and say so in their logs."""
        ...


def chain_records(head: Head, records: Iterable[Mapping[str, Any]]) -> tuple[list[str], Head]:
    """Return the lines of records behind `head`, and the head that they make."""
    seq, previous = head
    lines: list[str] = []
    for record in records:
        seq += 1
        line, previous = chain_line(previous, {"seq": seq} | dict(record))
        lines.append(line)
    return lines, (seq, previous)


def make_forgotten(at: int, before_seq: int) -> dict[str, Any]:
    """Make the record of a deletion: number `before_seq` is the first line that is kept."""
    return {"at": at, "event": FORGOTTEN, "before": before_seq}


def parse_head(line: str) -> Head | None:
    """Return what a line says of itself; None where it is no line."""
    try:
        record = json.loads(line)
        seq, own = record["seq"], record["hash"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return (seq, own) if type(seq) is int and type(own) is str else None
