"""Users of a tenant who are suspended, or without valid credentials: their schedules begin no runs.

A suspension is a record next to the keys, which every service reads.
"""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from typing import TYPE_CHECKING

from msgspec.structs import replace

from headrace.errors import InvalidRequest, NotFound, QuotaExceeded
from services.memory.storage.records.keys import StoredKey
from services.memory.storage.records.kind import make_version
from services.runtime.auth import identity
from services.runtime.auth.api_keys import KEYS_MAX, ApiKeys
from services.runtime.auth.identity import Identity
from services.runtime.auth.settings import API_KEY
from services.runtime.clock import now_ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from services.memory.storage.records.keys import Keys
    from services.runtime.auth.settings import AuthSettings

TENANT_MAX = 10_000
"""Maximum users of a tenant who are or were suspended."""

_IDS = uuid.UUID("5c0c4f5e-3d4b-4a55-9a55-0f0f7a2f7a1d")


class SuspensionStore:
    def __init__(self, keys: Keys, clock: Callable[[], int] = now_ms) -> None:
        """`clock` returns Unix milliseconds."""
        self._keys = keys
        self._clock = clock

    async def is_suspended(self, tenant: str, user: str) -> bool:
        found = await self._keys.find(_make_id(tenant, user))
        return found is not None and not found.revoked_at

    async def list_own(self) -> list[StoredKey]:
        """List the tenant's active suspensions, oldest first."""
        found = await self._keys.list_own(identity.require_identity().tenant, suspends=True)
        return sorted((one for one in found if not one.revoked_at), key=lambda one: (one.created_at, one.user))

    async def suspend(self, user: str) -> tuple[StoredKey, bool]:
        """Suspend the user; return the suspension, and whether it is new."""
        caller, now = identity.require_identity(), self._clock()
        if not Identity(caller.tenant, user).is_valid:
            raise InvalidRequest.of("user", "must be 1 to 128 visible ASCII characters")
        if user == caller.user:
            raise InvalidRequest.of("user", "must not be your own: nobody could release you by it")
        key_id = _make_id(caller.tenant, user)
        made = StoredKey(
            key_id=key_id,
            tenant=caller.tenant,
            user=user,
            version=make_version(),
            sha256=hashlib.sha256(key_id.encode()).hexdigest(),  # of no text that callers can show
            name="suspended",
            scopes=(),
            created_at=now,
            created_by=caller.user,
            updated_at=now,
            suspends=True,
        )
        stored = await self._keys.find(key_id)
        if stored is None:
            if len(await self._keys.list_own(caller.tenant, suspends=True)) >= TENANT_MAX:
                raise QuotaExceeded(f"{TENANT_MAX} users are or were suspended already", limit=str(TENANT_MAX))
            if await self._keys.count_all() >= KEYS_MAX:
                raise QuotaExceeded(f"all tenants together have {KEYS_MAX} keys already", limit=str(KEYS_MAX))
            if await self._keys.put(made):
                return made, True
            stored = self._keys.check_kept(await self._keys.find(key_id))

        def change(before: StoredKey) -> StoredKey:
            return replace(made, version=before.version, revision=before.revision) if before.revoked_at else before

        is_new = bool(stored.revoked_at)
        return await self._change(stored, change), is_new

    async def release(self, user: str) -> bool:
        """Release the user; return whether they were suspended. Raises NotFound for a user who never was."""
        caller = identity.require_identity()
        stored = await self._keys.find(_make_id(caller.tenant, user))
        if stored is None:
            raise NotFound(f"user {user!r} is not suspended", user=user)

        def change(before: StoredKey) -> StoredKey:
            now = self._clock()
            return before if before.revoked_at else replace(before, revoked_at=now, revoked_by=caller.user)

        is_new = not stored.revoked_at
        await self._change(stored, change)
        return is_new

    async def _change(self, stored: StoredKey, change: Callable[[StoredKey], StoredKey]) -> StoredKey:
        return self._keys.check_kept(await self._keys.change(stored, change))


def _make_id(tenant: str, user: str) -> str:
    return str(uuid.uuid5(_IDS, f"{tenant}/{user}"))


class LivingUsers:
    """Users with valid credentials, as far as memory knows; that requires that callers use only API keys."""

    def __init__(self, keys: Keys, settings: AuthSettings) -> None:
        self._keys = keys
        self.is_suspended = SuspensionStore(keys).is_suspended
        self._file = settings.api_keys_file
        self._is_known = settings.methods == frozenset({API_KEY})

    async def has_gone(self, tenant: str, user: str) -> bool:
        """Return whether the user had API keys, and all have ended. Keys that ended long ago are forgotten, so the
        result may later become False."""
        states = await self._list_states(tenant, user)
        return bool(states) and "active" not in states and not await asyncio.to_thread(self._is_in_file, tenant, user)

    async def is_back(self, tenant: str, user: str) -> bool:
        """Return whether a user who had gone has a key again, or may have credentials unknown here."""
        if not self._is_known or "active" in await self._list_states(tenant, user):
            return True
        return await asyncio.to_thread(self._is_in_file, tenant, user)

    async def _list_states(self, tenant: str, user: str) -> set[str]:
        if not self._is_known:
            return set()
        now = now_ms()
        return {key.find_state(now) for key in await self._keys.list_own(tenant) if key.user == user}

    def _is_in_file(self, tenant: str, user: str) -> bool:
        return self._file is not None and ApiKeys(self._file).has_user(tenant, user)
