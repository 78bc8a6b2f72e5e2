"""Why a schedule begins no runs, whatever its times, posts and user say: an operator holds it, or its user is
suspended or has gone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from services.memory.keys.suspensions import SuspensionStore
from services.runtime.auth.api_keys import ApiKeys
from services.runtime.auth.settings import API_KEY
from services.runtime.clock import now_ms

if TYPE_CHECKING:
    from services.memory.storage.records.keys import Keys
    from services.runtime.auth.settings import AuthSettings


class LivingUsers:
    """Who has a credential, as far as memory knows: where callers show API keys alone."""

    def __init__(self, keys: Keys, settings: AuthSettings) -> None:
        self._keys = keys
        self.is_suspended = SuspensionStore(keys).is_suspended
        self._file = settings.api_keys_file
        self._is_known = settings.methods == frozenset({API_KEY})

    async def has_gone(self, tenant: str, user: str) -> bool:
        """Whether the user has had API keys, and each has ended. Keys that ended long ago are forgotten, so that this
        is no more said of their user."""
        states = await self._list_states(tenant, user)
        return bool(states) and "active" not in states and not await asyncio.to_thread(self._is_in_file, tenant, user)

    async def is_back(self, tenant: str, user: str) -> bool:
        """Whether somebody who had gone has a key again, or may have a credential that is not known here."""
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
