"""Stored API keys, with a hash in place of the key's text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from services.memory.storage.records.kind import Kind, Records
from services.runtime.clock import now_ms

if TYPE_CHECKING:
    from services.memory.storage.sql import StatementRunner


class StoredKey(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Times are Unix milliseconds, 0 for none."""

    key_id: str
    tenant: str
    user: str
    version: int
    """Changes with each write, so that a writer that read an older one is refused."""
    sha256: str
    """SHA-256 of the key's text, as hex digits."""
    name: str
    scopes: tuple[str, ...]
    created_at: int
    created_by: str
    updated_at: int
    roles: tuple[str, ...] = ()
    kind: str = "person"
    expires_at: int = 0
    disabled: bool = False
    revoked_at: int = 0
    revoked_by: str = ""
    runs_max: int = 0
    """0: no limit."""
    requests_per_minute: int = 0
    """0: no limit."""
    makers: tuple[str, ...] = ()
    """Users other than its own who know its text; if an earlier version left it empty, `created_by` does."""
    is_unconfirmed: bool = False
    confirmed_by: str = ""
    suspends: bool = False
    """Whether it is not a key but the suspension of its user, until it is revoked. It is stored here so that every
    service receives it with the keys."""
    revision: int = 0
    """Position of its last change among those of all keys, assigned by the store."""

    def find_state(self, now: int) -> str:
        if self.revoked_at:
            return "revoked"
        if 0 < self.expires_at <= now:
            return "expired"
        if self.is_unconfirmed:
            return "unconfirmed"
        return "disabled" if self.disabled else "active"

    def list_makers(self) -> tuple[str, ...]:
        """Return the users, other than its own, who know its text."""
        is_own = self.user in (self.created_by, self.confirmed_by)
        return self.makers or (() if is_own else (self.created_by,))

    def find_end(self, now: int) -> int:
        """Return when it ended for good; 0 if it has not."""
        return self.revoked_at or (self.expires_at if 0 < self.expires_at <= now else 0)


def _revoke_erased(key: StoredKey) -> StoredKey:
    now = now_ms()
    return key if key.revoked_at or key.suspends else replace(key, updated_at=now, revoked_at=now, revoked_by="erasure")


KEYS = Kind(
    "key",
    StoredKey,
    "api_keys",
    {
        "key_id text": lambda key: key.key_id,
        "tenant text": lambda key: key.tenant,
        "created_at bigint": lambda key: key.created_at,
    },
    order="revision",
    indexes=("(tenant, created_at, key_id)",),
    counter="api_key_revision",
    plural="keys",
    get_user=lambda key: key.user,
    erase=_revoke_erased,
)


class Keys(Records[StoredKey]):
    def __init__(self, sql: StatementRunner) -> None:
        super().__init__(sql, KEYS)

    async def list_own(self, tenant: str, *, suspends: bool = False) -> list[StoredKey]:
        """List the tenant's keys, oldest first, or with `suspends` the suspensions of its users."""
        own = [key for key in await self.select("tenant = $1", tenant) if key.suspends == suspends]
        return sorted(own, key=lambda key: (key.created_at, key.key_id))

    async def count_all(self) -> int:
        return (await self.fetch("count(*)"))[0][0]
