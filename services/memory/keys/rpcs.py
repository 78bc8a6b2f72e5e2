"""KeyService: the RPCs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.errors import InvalidRequest
from headrace.v1 import keys_pb2
from headrace.v1.keys_pb2_grpc import KeyServiceServicer
from services.runtime.auth import identity
from services.runtime.auth.api_keys import name_key
from services.runtime.clock import now_ms
from services.runtime.formats.same_fields import copy_fields

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from services.memory.keys.store import KeyStore
    from services.memory.keys.suspensions import SuspensionStore
    from services.memory.storage.audit import AuditTrail
    from services.memory.storage.records.keys import StoredKey
    from services.runtime.rpc.interceptors import Context


class KeyService(KeyServiceServicer):
    def __init__(
        self,
        keys: KeyStore,
        suspensions: SuspensionStore,
        audit: AuditTrail | None = None,
        note_holds: Callable[[str, str], Awaitable[None]] | None = None,
    ) -> None:
        """Changes are recorded in `audit`, if given. `note_holds` updates the held state of a user's schedules, given
        tenant and user."""
        self._keys = keys
        self._suspensions = suspensions
        self._note_holds = note_holds
        self._audit = audit

    async def CreateKey(self, request: keys_pb2.CreateKeyRequest, context: Context) -> keys_pb2.CreateKeyResponse:
        fields = {field.name: value for field, value in request.ListFields()}
        key, secret = await self._keys.create(fields.pop("key_id", ""), fields)
        if secret:
            await self._record("key.made", key)
        return keys_pb2.CreateKeyResponse(key=_make_message(key), secret=secret)

    async def ConfirmKey(self, request: keys_pb2.ConfirmKeyRequest, context: Context) -> keys_pb2.ConfirmKeyResponse:
        key, secret, is_changed = await self._keys.confirm(request.key_id)
        if is_changed:
            await self._record("key.confirmed", key, byUser=bool(secret))
        return keys_pb2.ConfirmKeyResponse(key=_make_message(key), secret=secret)

    async def ListKeys(self, request: keys_pb2.ListKeysRequest, context: Context) -> keys_pb2.ListKeysResponse:
        return keys_pb2.ListKeysResponse(
            keys=map(_make_message, await self._keys.list_own(request.user, request.state))
        )

    async def GetKey(self, request: keys_pb2.GetKeyRequest, context: Context) -> keys_pb2.GetKeyResponse:
        return keys_pb2.GetKeyResponse(key=_make_message(await self._keys.get(request.key_id)))

    async def UpdateKey(self, request: keys_pb2.UpdateKeyRequest, context: Context) -> keys_pb2.UpdateKeyResponse:
        fields = {field.name: value for field, value in request.ListFields()}
        if fields.pop("no_roles", False):
            if "roles" in fields:
                raise InvalidRequest.of("noRoles", "cannot be combined with roles")
            fields["roles"] = ()
        key = await self._keys.update(fields.pop("key_id"), fields)
        await self._record("key.changed", key, changed=" ".join(sorted(fields)))
        return keys_pb2.UpdateKeyResponse(key=_make_message(key))

    async def RevokeKey(self, request: keys_pb2.RevokeKeyRequest, context: Context) -> keys_pb2.RevokeKeyResponse:
        key = await self._keys.revoke(request.key_id)
        await self._record("key.revoked", key)
        return keys_pb2.RevokeKeyResponse(key=_make_message(key))

    async def SuspendUser(self, request: keys_pb2.SuspendUserRequest, context: Context) -> keys_pb2.SuspendUserResponse:
        suspension, is_new = await self._suspensions.suspend(request.user)
        await self._record_user("user.suspended", request.user, is_new=is_new)
        return keys_pb2.SuspendUserResponse(user=_make_suspended(suspension))

    async def ReleaseUser(self, request: keys_pb2.ReleaseUserRequest, context: Context) -> keys_pb2.ReleaseUserResponse:
        is_new = await self._suspensions.release(request.user)
        await self._record_user("user.released", request.user, is_new=is_new)
        return keys_pb2.ReleaseUserResponse()

    async def ListSuspendedUsers(
        self, request: keys_pb2.ListSuspendedUsersRequest, context: Context
    ) -> keys_pb2.ListSuspendedUsersResponse:
        return keys_pb2.ListSuspendedUsersResponse(users=map(_make_suspended, await self._suspensions.list_own()))

    async def ReadKeyChanges(
        self, request: keys_pb2.ReadKeyChangesRequest, context: Context
    ) -> keys_pb2.ReadKeyChangesResponse:
        return await read_changes(self._keys, request.after_revision)

    async def TakeKeyCalls(
        self, request: keys_pb2.TakeKeyCallsRequest, context: Context
    ) -> keys_pb2.TakeKeyCallsResponse:
        return await take_calls(self._keys, request.key_id, request.wanted)

    async def _record_user(self, event: str, user: str, *, is_new: bool) -> None:
        caller = identity.require_identity()
        if self._note_holds is not None:
            await self._note_holds(caller.tenant, user)
        if is_new and self._audit is not None:
            await self._audit.record(event, caller, of=user)

    async def _record(self, event: str, key: StoredKey, **details: str | bool) -> None:
        if self._audit is not None:
            facts: dict[str, Any] = {"keyId": key.key_id, "of": key.user, "scopes": " ".join(key.scopes)} | details
            await self._audit.record(event, identity.require_identity(), **facts)


async def read_changes(keys: KeyStore, after_revision: int) -> keys_pb2.ReadKeyChangesResponse:
    found, has_more = await keys.list_changes(after_revision)
    revision = found[-1].revision if found else after_revision
    return keys_pb2.ReadKeyChangesResponse(keys=map(_make_record, found), revision=revision, has_more=has_more)


async def take_calls(keys: KeyStore, key_id: str, wanted: int) -> keys_pb2.TakeKeyCallsResponse:
    granted, retry_after_ms, full_in_ms = await keys.take_calls(key_id, wanted)
    return keys_pb2.TakeKeyCallsResponse(granted=granted, retry_after_ms=retry_after_ms, full_in_ms=full_in_ms)


def _make_message(key: StoredKey) -> keys_pb2.ApiKey:
    credential = name_key(bytes.fromhex(key.sha256))
    state, makers = key.find_state(now_ms()), key.list_makers()
    return copy_fields(key, keys_pb2.ApiKey, state=state, credential=credential, makers=makers)


def _make_suspended(suspension: StoredKey) -> keys_pb2.SuspendedUser:
    return keys_pb2.SuspendedUser(
        user=suspension.user, suspended_at=suspension.created_at, suspended_by=suspension.created_by
    )


def _make_record(key: StoredKey) -> keys_pb2.KeyRecord:
    return copy_fields(
        key,
        keys_pb2.KeyRecord,
        sha256=bytes.fromhex(key.sha256),
        disabled=key.disabled or key.is_unconfirmed or key.suspends,  # also for services of earlier versions
        unconfirmed=key.is_unconfirmed,
        makers=key.list_makers(),
        revoked=bool(key.revoked_at),
    )
