"""Erasures and holds as they are stored."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from services.memory.storage.records.kind import Kind

GOING, DONE = "going", "done"


class Kept(msgspec.Struct, frozen=True, rename="camel"):
    """What stays of what was to be erased."""

    name: str
    what: str
    reason: str


class StoredErasure(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Times are Unix milliseconds, 0 for none."""

    erasure_id: str
    tenant: str
    user: str
    """Empty: the whole tenant."""
    version: int
    """Another one after each change, so that a writer that read an older one is refused."""
    requested_by: str
    requested_at: int
    credential: str = ""
    """What was shown by who has asked: that key is not revoked."""
    request_id: str = ""
    reason: str = ""
    state: str = GOING
    done_at: int = 0
    counts: dict[str, int] = {}
    """What went, by kind, as far as it has come."""
    kept: tuple[Kept, ...] = ()
    redacted: dict[str, list[str]] = {}
    """Runs in others' chats, by chat, whose records of calls are still with tools."""
    owner: str = ""
    """The process that works on it."""
    claimed_until: int = 0
    problem: str = ""

    @property
    def record_id(self) -> str:
        return self.erasure_id

    def covers(self, tenant: str, user: str) -> bool:
        return self.tenant == tenant and self.user in ("", user)


class StoredHold(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Times are Unix milliseconds, 0 for none."""

    hold_id: str
    tenant: str
    version: int
    """Another one after each change, so that a writer that read an older one is refused."""
    reason: str
    placed_by: str
    placed_at: int
    user: str = ""
    chat_id: str = ""
    """Empty, and user too: the whole tenant."""
    request_id: str = ""
    released_by: str = ""
    released_at: int = 0

    @property
    def record_id(self) -> str:
        return self.hold_id


R = TypeVar("R", StoredErasure, StoredHold)


def make_kind(name: str, struct: type[R]) -> Kind[R]:
    """Make a kind of few records, all of which are read together, in the table of such kinds."""
    return Kind(
        name,
        struct,
        "data_records",
        {"record_id text": lambda record: record.record_id, "kind text": lambda record: name},
        order="record_id",
        where=f"kind = '{name}'",
    )


ERASURES, HOLDS = make_kind("erasure", StoredErasure), make_kind("hold", StoredHold)
