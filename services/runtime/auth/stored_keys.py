"""A service's copy of all API keys and suspended users that memory has, read again and again.

So a call needs no request to memory, whatever it presents. Only an unknown text in our own format waits for the next
read, because its key may be new; reads are limited in rate, so that strangers cannot cause load.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

import grpc
import structlog

from headrace.errors import CredentialEnded, HeadraceError, Overloaded, Unauthenticated
from headrace.v1 import keys_pb2
from services.runtime.auth.api_keys import name_key
from services.runtime.auth.identity import Identity
from services.runtime.auth.key_calls import KeyCalls
from services.runtime.clock import monotonic_s, now_ms
from services.runtime.newest import NewestDict

LOOK_GAP_S = 0.2
"""Minimum time between reads: unknown texts cause at most five a second."""

WAITING_MAX = 256
"""Maximum calls with unknown texts that wait for a read; further ones are asked to try again."""

UNKNOWN_MAX, UNKNOWN_S = 4096, 30.0
"""Maximum texts remembered as unknown, and how long they are refused without another read."""

PAGES_MAX = 1000
"""Maximum pages of one read: more than all keys need."""

ReadChanges: TypeAlias = Callable[[int], Awaitable[keys_pb2.ReadKeyChangesResponse]]
"""Read the keys that were changed after a revision; raises HeadraceError or AioRpcError."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class KnownKey:
    identity: Identity
    expires_at: int
    """Unix milliseconds; 0: never."""
    disabled: bool
    revoked: bool
    unconfirmed: bool
    sha256: bytes
    runs_max: int
    requests_per_minute: int
    """0: no limit for this key."""

    def check(self) -> None:
        """Raise CredentialEnded if the key has ended."""
        if self.revoked:
            raise CredentialEnded("the API key was revoked; get a new one")
        if 0 < self.expires_at <= now_ms():
            raise CredentialEnded("the API key has expired; get a new one")
        if self.unconfirmed:
            raise CredentialEnded("the API key is not confirmed: its user or another admin must do so (ConfirmKey)")
        if self.disabled:
            raise CredentialEnded("the API key is disabled")

    @property
    def has_ended(self) -> bool:
        return self.revoked or self.disabled or 0 < self.expires_at <= now_ms()


class StoredKeys:
    def __init__(self, good_s: float) -> None:
        """Keys remain valid for `good_s` seconds after the last read."""
        self._good_s = good_s
        self._by_hash: dict[bytes, KnownKey] = {}
        self._by_id: dict[str, KnownKey] = {}
        self._by_credential: dict[str, KnownKey] = {}
        self._revision = 0
        self._read_at = float("-inf")
        self._is_complete = False
        """Whether every read since the one of all keys has succeeded."""
        self._is_away = False
        """Whether the last read failed."""
        self._unknown: NewestDict[bytes, float] = NewestDict(UNKNOWN_MAX)
        """Time from which each unknown text may cause another read."""
        self._asked = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []
        """Calls that wait for the end of the next read."""
        self.calls = KeyCalls()
        self._listeners: list[Callable[[], None]] = []
        self._suspended: set[tuple[str, str]] = set()
        """Suspended users, as (tenant, user)."""
        self._is_followed = False

    async def find_identity(self, text: str, *, is_call: bool = True) -> Identity:
        """Return the holder of the key, and count a call if this `is_call`.

        Raises:
            Unauthenticated: There is no such key.
            CredentialEnded: The key is no longer valid.
            Overloaded: Memory has been unavailable for too long.
            QuotaExceeded: The key has used up its calls for now.
        """
        sha256 = hashlib.sha256(text.encode()).digest()
        key = self._by_hash.get(sha256)
        if key is None or key.unconfirmed:  # it may have been created, or confirmed, since the last read
            key = await self._look_for(sha256)
        is_fresh = monotonic_s() - self._read_at <= self._good_s
        if not is_fresh or (key is None and self._is_away):
            raise Overloaded("API keys cannot be checked now; try again later", retry_after_s=1.0)
        if key is None:
            raise Unauthenticated("the credential is not valid here")
        key.check()
        if is_call and key.requests_per_minute:
            await self.calls.count(key.identity.key_id, key.requests_per_minute)
        return key.identity

    def find(self, credential: str) -> KnownKey | None:
        """Return the key with this name, which logs and runs use."""
        return self._by_credential.get(credential)

    def measure_calls(self, key: KnownKey) -> tuple[int, float]:
        """Return the key's calls that count now, of those in a minute, and the seconds until the next one is
        available."""
        return self.calls.measure(key.identity.key_id, key.requests_per_minute)

    def listen(self, act: Callable[[], None]) -> None:
        """Call `act` after each read."""
        self._listeners.append(act)

    def find_holder(self, who: Identity) -> Identity:
        """Return the holder of the key that `who` presented. Raises CredentialEnded."""
        key = self._by_id.get(who.key_id)
        if key is None or key.identity.credential != who.credential:
            raise CredentialEnded("the API key has ended; get a new one")
        key.check()
        return key.identity

    async def check_user(self, who: Identity) -> None:
        """Raise like `check_not_suspended`; raise Overloaded if memory has not yet sent the suspended users."""
        if self._is_followed and self._read_at < 0:
            await self._wait_for_look()
            if self._read_at < 0:
                raise Overloaded("the suspended users are not known yet; try again later", retry_after_s=1.0)
        self.check_not_suspended(who)

    def check_not_suspended(self, who: Identity) -> None:
        """Raise CredentialEnded for a suspended user, or for a key that a suspended user knows."""
        if user := self.find_suspended(who):
            raise CredentialEnded(f"user {user!r} is suspended; an admin of the tenant may release them")

    def find_suspended(self, who: Identity) -> str:
        """Return a suspended user among those who may be `who`; empty if there is none."""
        if not self._suspended:
            return ""
        return min((user for user in who.persons if (who.tenant, user) in self._suspended), default="")

    async def follow(self, read: ReadChanges, poll_s: float) -> None:
        """Read changes every `poll_s` seconds, forever; the time of the read counts towards them."""
        loop = asyncio.get_running_loop()
        self._is_followed = True
        try:
            while True:
                next_s = loop.time() + poll_s
                await self._look(read)
                await asyncio.sleep(min(LOOK_GAP_S, poll_s))
                with suppress(TimeoutError):
                    # The answer may have been read before a key ended; the next read will include it.
                    async with asyncio.timeout_at(next_s):
                        await self._asked.wait()
        finally:
            _release(self._waiting)

    async def _look(self, read: ReadChanges) -> None:
        waiting, self._waiting = self._waiting, []
        self._asked.clear()
        began_at = monotonic_s()
        try:
            await self._read_changes(read)
        except (HeadraceError, grpc.aio.AioRpcError) as error:
            if not self._is_away:
                log.warning("api keys cannot be read", problem=type(error).__name__, good_s=self._good_s)
            # The store may return as an older copy, which assigns revisions again: read everything again.
            self._is_away, self._is_complete = True, False
        else:
            if self._is_away:
                log.info("api keys are read again", keys=len(self._by_id))
            self._read_at, self._is_away, self._is_complete = began_at, False, True
        finally:
            _release(waiting)
        for act in self._listeners:
            act()

    async def _read_changes(self, read: ReadChanges) -> None:
        after, records = self._revision if self._is_complete else 0, list[keys_pb2.KeyRecord]()
        for _ in range(PAGES_MAX):
            page = await read(after)
            records += page.keys
            after = page.revision
            if not page.has_more:
                break
        if not self._is_complete:
            for known in (self._by_hash, self._by_id, self._by_credential, self._suspended):
                known.clear()
        self._revision = after
        for record in records:
            self._take(record)

    def _take(self, record: keys_pb2.KeyRecord) -> None:
        if record.suspends:
            change = self._suspended.discard if record.revoked else self._suspended.add
            change((record.tenant, record.user))
            return
        credential = name_key(record.sha256)
        roles, scopes, makers = frozenset(record.roles), frozenset(record.scopes), frozenset(record.makers)
        holder = Identity(record.tenant, record.user, credential, roles, scopes, record.key_id, makers=makers)
        key = KnownKey(
            holder,
            record.expires_at,
            record.disabled,
            record.revoked,
            record.unconfirmed,
            record.sha256,
            record.runs_max,
            record.requests_per_minute,
        )
        before = self._by_id.get(record.key_id)
        # the user's key has a new text, and the old one is invalid
        if before is not None and before.sha256 != record.sha256:
            self._by_hash.pop(before.sha256, None)
            self._by_credential.pop(before.identity.credential, None)
        self._by_hash[record.sha256] = self._by_id[record.key_id] = self._by_credential[credential] = key
        if not key.requests_per_minute:
            self.calls.forget(record.key_id)

    async def _look_for(self, sha256: bytes) -> KnownKey | None:
        now = monotonic_s()
        if self._unknown.get(sha256, now) > now:
            return None
        await self._wait_for_look()
        key = self._by_hash.get(sha256)
        if key is None and self._is_complete:
            self._unknown[sha256] = monotonic_s() + UNKNOWN_S
        return key

    async def _wait_for_look(self) -> None:
        """Wait for the end of the next read."""
        if len(self._waiting) >= WAITING_MAX:
            raise Overloaded("too many unknown API keys are looked for; try again later", retry_after_s=1.0)
        looked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(looked)
        self._asked.set()
        await looked


def _release(waiting: list[asyncio.Future[None]]) -> None:
    for looked in waiting:
        if not looked.done():
            looked.set_result(None)
