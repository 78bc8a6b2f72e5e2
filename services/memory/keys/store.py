"""The API keys of the current tenant, under the rules of KeyService."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

import structlog
from msgspec.structs import replace

from headrace.errors import InvalidRequest, NotFound, PermissionDenied, QuotaExceeded
from services.memory.storage.records.keys import StoredKey
from services.memory.storage.records.kind import make_version
from services.runtime.auth import identity
from services.runtime.auth.api_keys import KEYS_MAX, make_key_text
from services.runtime.auth.identity import ALL_SCOPES, DEFAULT_SCOPES, ROLES_MAX, Identity, is_role
from services.runtime.clock import now_ms
from services.runtime.randomness import new_uuid

if TYPE_CHECKING:
    from services.memory.storage.key_uses import KeyUses
    from services.memory.storage.records.keys import Keys

TENANT_KEYS_MAX = 1000
"""Maximum keys of a tenant, including those that ended less than KEPT_MS ago."""

KEPT_MS = 30 * 86_400_000
"""How long an ended key is shown, long after every service has learned of its end."""

RUNS_MAX, REQUESTS_MAX = 100_000, 1_000_000

CHANGES_MAX = 500
"""Maximum keys per response to a service."""

_LIMITS = {"runs_max": ("runsMax", RUNS_MAX), "requests_per_minute": ("requestsPerMinute", REQUESTS_MAX)}

log = structlog.get_logger()


class KeyStore:
    def __init__(
        self,
        keys: Keys,
        clock: Callable[[], int] = now_ms,
        keys_max: int = TENANT_KEYS_MAX,
        changes_max: int = CHANGES_MAX,
        uses: KeyUses | None = None,
        roles: Collection[str] = (),
    ) -> None:
        """`clock` returns Unix milliseconds. A tenant has at most `keys_max` keys, a response `changes_max`.

        `uses` counts the keys' calls; None if they are not counted. Any admin may give the `roles`.
        """
        self._keys = keys
        self._roles = frozenset(roles)
        self._uses = uses
        self._clock = clock
        self._keys_max, self._changes_max = keys_max, changes_max

    async def create(self, key_id: str, fields: dict[str, Any]) -> tuple[StoredKey, str]:
        """Return the key with these fields, and its text, which is empty if the key existed."""
        caller, now = identity.require_identity(), self._clock()
        text = make_key_text()
        given: dict[str, Any] = {"scopes": tuple(sorted(DEFAULT_SCOPES))} | _order_lists(fields)
        key = StoredKey(
            key_id=key_id or new_uuid(),
            tenant=caller.tenant,
            version=make_version(),
            sha256=hashlib.sha256(text.encode()).hexdigest(),
            created_at=now,
            created_by=caller.user,
            updated_at=now,
            is_unconfirmed=fields["user"] != caller.user,
            makers=tuple(sorted(caller.persons - {fields["user"]})),
            **given,
        )
        _check_key(key, fields, now, least=1)
        _check_scopes(key.scopes, caller)
        self._check_roles(key.roles, caller)
        if (stored := await self._keys.find(key.key_id)) is not None:
            return await self._keys.keep(_check_same(stored, key)), ""
        await self._check_room(caller.tenant, now)
        if not await self._keys.put(key):
            stored = self._keys.check_kept(await self._keys.find(key.key_id))
            # A statement with a lost response is repeated, and then finds its own key.
            is_own = stored.sha256 == key.sha256
            key = await self._keys.keep(_check_same(stored, key))
            if not is_own:
                return key, ""
        _log_deed("api key made", key, caller)
        return key, text

    async def list_own(self, user: str, state: str) -> list[StoredKey]:
        """List the tenant's keys, optionally only those of one user or in one state."""
        tenant, now = identity.require_identity().tenant, self._clock()
        keys = [key for key in await self._keys.list_own(tenant) if not _is_forgotten(key, now)]
        return [key for key in keys if user in ("", key.user) and state in ("", key.find_state(now))]

    async def get(self, key_id: str) -> StoredKey:
        """Return the tenant's key. Raises NotFound."""
        tenant = identity.require_identity().tenant
        key = await self._keys.find(key_id)
        if key is None or key.tenant != tenant or key.suspends or _is_forgotten(key, self._clock()):
            raise _make_not_found(key_id)
        return key

    async def update(self, key_id: str, fields: dict[str, Any]) -> StoredKey:
        """Change fields by name."""
        caller = identity.require_identity()
        if fields.get("name") == "":
            raise InvalidRequest.of("name", "must not be empty")
        changes = _order_lists(fields)
        _check_scopes(changes.get("scopes", ()), caller)

        def change(key: StoredKey) -> StoredKey:
            _check_not_revoked(key)
            changed = replace(key, **changes)
            _check_key(changed, fields, self._clock(), least=0)
            self._check_roles({*changed.roles} - {*key.roles}, caller)
            is_more = not ({*changed.scopes} <= {*key.scopes} and {*changed.roles} <= {*key.roles})
            is_more |= 0 < key.expires_at < (changed.expires_at or math.inf)
            is_shared = bool(key.list_makers())
            return replace(changed, is_unconfirmed=True) if is_more and is_shared else changed

        key = await self._change(await self.get(key_id), change)
        _log_deed("api key changed", key, caller)
        return key

    async def confirm(self, key_id: str) -> tuple[StoredKey, str, bool]:
        """Return the key, its new text if the caller is its user, and whether anything has changed.

        Raises:
            NotFound: The caller may not see the key.
            PermissionDenied: The caller made the key, or authenticates with a key that one of its makers made; or only
                its user knows it, and the caller's credential lacks one of its scopes or roles.
        """
        caller, key, text = identity.require_identity(), await self.get(key_id), make_key_text()
        is_own = caller.user == key.user
        if not is_own and "admin" not in caller.scopes:
            raise _make_not_found(key_id)
        if shared := caller.persons & {*key.list_makers()}:
            raise PermissionDenied(
                f"{min(shared)!r} has made this key, and somebody else must confirm it: its user, by a credential of "
                "their own, or another admin"
            )

        def change(key: StoredKey) -> StoredKey:
            _check_not_revoked(key)
            confirmed = replace(key, is_unconfirmed=False, confirmed_by=caller.user)
            lacking = sorted({*key.scopes} - caller.scopes) + sorted({*key.roles} - caller.roles)
            if is_own and lacking and not (key.is_unconfirmed or key.list_makers()):
                raise PermissionDenied(
                    f"this credential lacks {lacking[0]!r}, which the key has: use the key itself, or one that an "
                    "admin makes for you"
                )
            if is_own:
                sha256 = hashlib.sha256(text.encode()).hexdigest()
                return replace(confirmed, sha256=sha256, makers=tuple(sorted(caller.makers)))
            return confirmed if key.is_unconfirmed else key

        changed = await self._change(key, change)
        _log_deed("api key confirmed", changed, caller)
        return changed, text if is_own else "", is_own or key.is_unconfirmed

    async def revoke(self, key_id: str) -> StoredKey:
        caller = identity.require_identity()

        def change(key: StoredKey) -> StoredKey:
            return key if key.revoked_at else replace(key, revoked_at=self._clock(), revoked_by=caller.user)

        key = await self._change(await self.get(key_id), change)
        _log_deed("api key revoked", key, caller)
        return key

    async def list_changes(self, after_revision: int) -> tuple[list[StoredKey], bool]:
        """Return keys of all tenants changed after the revision, and whether there are more."""
        found = await self._keys.list_changes(after_revision, self._changes_max + 1)
        return found[: self._changes_max], len(found) > self._changes_max

    async def take_calls(self, key_id: str, wanted: int) -> tuple[int, int, int]:
        """Take up to `wanted` calls of a key of any tenant.

        Return the number granted, the milliseconds until one more is available, and those until all are. Raises
        NotFound.
        """
        assert self._uses is not None, "a store that takes calls has a counter"
        key = await self._keys.find(key_id)
        if key is None or not key.requests_per_minute:
            raise _make_not_found(key_id)
        use = await self._uses.take_calls(key_id, key.requests_per_minute, min(max(1, wanted), REQUESTS_MAX))
        now = self._clock()
        return use.granted, use.wait_ms(key.requests_per_minute, now), max(0, use.full_at_us // 1000 - now)

    async def _check_room(self, tenant: str, now: int) -> None:
        """Check the tenant's limit, after forgetting keys that ended long ago. Raises QuotaExceeded."""
        kept = 0
        for key in await self._keys.list_own(tenant):
            if _is_forgotten(key, now):
                await self._keys.delete(key.key_id)
            else:
                kept += 1
        if kept >= self._keys_max:
            limit = str(self._keys_max)
            raise QuotaExceeded(f"{limit} keys are there already, those that ended lately included", limit=limit)
        if await self._keys.count_all() >= KEYS_MAX:
            raise QuotaExceeded(f"all tenants together have {KEYS_MAX} keys already", limit=str(KEYS_MAX))

    def _check_roles(self, roles: Collection[str], caller: Identity) -> None:
        if lacking := {*roles} - caller.roles - self._roles:
            role = min(lacking)
            raise PermissionDenied(
                f"roles: {role!r} is none of yours, and HEADRACE_MEMORY_KEY_ROLES does not name it", role=role
            )

    async def _change(self, key: StoredKey, change: Callable[[StoredKey], StoredKey]) -> StoredKey:
        def touch(stored: StoredKey) -> StoredKey:
            changed = change(stored)
            return stored if changed == stored else replace(changed, updated_at=self._clock())

        changed = await self._keys.change(key, touch)
        if changed is None:
            raise _make_not_found(key.key_id)
        return changed


def _order_lists(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields with each list as a sorted tuple without duplicates. Raises InvalidRequest."""
    if unknown := set(fields.get("scopes", ())) - ALL_SCOPES:
        raise InvalidRequest.of("scopes", f"{min(unknown)!r} is none of {', '.join(sorted(ALL_SCOPES))}")
    lists = {name: tuple(sorted(set(fields[name]))) for name in ("roles", "scopes") if name in fields}
    return fields | lists


def _check_key(key: StoredKey, fields: dict[str, Any], now: int, *, least: int) -> None:
    """Raise InvalidRequest for invalid changes in `fields`; limits must be at least `least`."""
    if not Identity(key.tenant, key.user).is_valid:
        raise InvalidRequest.of("user", "must be 1 to 128 visible ASCII characters")
    if len(key.roles) > ROLES_MAX or not all(map(is_role, key.roles)):
        raise InvalidRequest.of("roles", "must be 1 to 64 visible ASCII characters each, without commas")
    for name, (field, most) in _LIMITS.items():
        if name in fields and not least <= getattr(key, name) <= most:
            raise InvalidRequest.of(field, f"must be {least} to {most}")
    if "expires_at" in fields and key.expires_at <= now and (least or key.expires_at):
        raise InvalidRequest.of("expiresAt", "must be in the future, in Unix milliseconds")


def _check_not_revoked(key: StoredKey) -> None:
    if key.revoked_at:
        raise InvalidRequest.of("keyId", "must be that of a key that is not revoked")


def _check_scopes(scopes: Sequence[str], caller: Identity) -> None:
    lacking: Collection[str] = set(scopes) - caller.scopes
    if lacking:
        scope = min(lacking)
        raise PermissionDenied(f"this credential has no scope {scope!r}, so no key of it can have it", scope=scope)


def _check_same(stored: StoredKey, key: StoredKey) -> StoredKey:
    """Return the stored key if the same request created it."""
    if stored.tenant != key.tenant or stored.suspends:
        raise _make_not_found(key.key_id)
    names = ("version", "sha256", "created_at", "created_by", "updated_at", "revision")
    names += ("makers", "is_unconfirmed", "confirmed_by")
    if replace(key, **{name: getattr(stored, name) for name in names}) != stored:
        raise InvalidRequest.of("keyId", "must be new, or that of the same key")
    return stored


def _is_forgotten(key: StoredKey, now: int) -> bool:
    ended_at = key.find_end(now)
    return 0 < ended_at <= now - KEPT_MS


def _make_not_found(key_id: str) -> NotFound:
    return NotFound(f"key {key_id} does not exist", keyId=key_id)


def _log_deed(deed: str, key: StoredKey, caller: Identity) -> None:
    log.info(deed, key_id=key.key_id, of=key.user, scopes=key.scopes, by=caller.user, credential=caller.credential)
