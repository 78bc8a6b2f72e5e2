"""Stored erasures and holds."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from services.memory.storage.records.kind import Kind

GOING, DONE = "going", "done"


class Kept(msgspec.Struct, frozen=True, rename="camel"):
    """Data that an erasure had to keep."""

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
    """Changes with each write, so that a writer that read an older one is refused."""
    requested_by: str
    requested_at: int
    credential: str = ""
    """The requester's credential; that key is not revoked."""
    request_id: str = ""
    reason: str = ""
    state: str = GOING
    done_at: int = 0
    counts: dict[str, int] = {}
    """Numbers erased so far, by kind."""
    kept: tuple[Kept, ...] = ()
    redacted: dict[str, list[str]] = {}
    """Runs in other users' chats, by chat, with call records still in the tools service."""
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
    """Changes with each write, so that a writer that read an older one is refused."""
    reason: str
    placed_by: str
    placed_at: int
    user: str = ""
    chat_id: str = ""
    """If empty along with `user`: the whole tenant."""
    request_id: str = ""
    released_by: str = ""
    released_at: int = 0

    @property
    def record_id(self) -> str:
        return self.hold_id


class StoredClaim(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Claim of one process on work that the services of a store share."""

    record_id: str
    """The work."""
    version: int
    owner: str
    claimed_until: int


R = TypeVar("R", StoredErasure, StoredHold, StoredClaim)


def make_kind(name: str, struct: type[R]) -> Kind[R]:
    """Create a kind of few records, which are always read together, in the table shared by such kinds."""
    return Kind(
        name,
        struct,
        "data_records",
        {"record_id text": lambda record: record.record_id, "kind text": lambda record: name},
        order="record_id",
        where=f"kind = '{name}'",
    )


ERASURES, HOLDS = make_kind("erasure", StoredErasure), make_kind("hold", StoredHold)

CLAIMS = make_kind("claim", StoredClaim)
