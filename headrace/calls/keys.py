"""The client's calls about API keys."""

from __future__ import annotations

from typing import Any

from headrace.calls.unary import UnaryCalls
from headrace.v1 import keys_pb2


class KeyCalls(UnaryCalls):
    _keys: Any

    async def create_key(self, name: str, user: str, **fields: Any) -> keys_pb2.CreateKeyResponse:
        """Make an API key of a user, and return it with its text (`secret`), which is shown this once.

        `fields` are those of CreateKeyRequest: key_id, kind, roles, scopes, expires_at, runs_max, requests_per_minute.
        """
        return await self._send(self._keys.CreateKey, keys_pb2.CreateKeyRequest(name=name, user=user, **fields))

    async def confirm_key(self, key_id: str) -> keys_pb2.ConfirmKeyResponse:
        """Confirm a key that somebody else has made; the caller's own gets a new text (`secret`), shown this once."""
        return await self._send(self._keys.ConfirmKey, keys_pb2.ConfirmKeyRequest(key_id=key_id))

    async def keys(self, user: str | None = None, state: str | None = None) -> list[keys_pb2.ApiKey]:
        """Return the tenant's keys, the oldest first, or those of one user or in one state."""
        request = keys_pb2.ListKeysRequest(user=user, state=state)
        reply: keys_pb2.ListKeysResponse = await self._send(self._keys.ListKeys, request)
        return list(reply.keys)

    async def key(self, key_id: str) -> keys_pb2.ApiKey:
        reply: keys_pb2.GetKeyResponse = await self._send(self._keys.GetKey, keys_pb2.GetKeyRequest(key_id=key_id))
        return reply.key

    async def update_key(self, key_id: str, **fields: Any) -> keys_pb2.ApiKey:
        """Change fields of UpdateKeyRequest; others stay as they are."""
        request = keys_pb2.UpdateKeyRequest(key_id=key_id, **fields)
        reply: keys_pb2.UpdateKeyResponse = await self._send(self._keys.UpdateKey, request)
        return reply.key

    async def revoke_key(self, key_id: str) -> keys_pb2.ApiKey:
        """End a key for ever: within 5 s it makes no new call, and the streams that it has open end."""
        request = keys_pb2.RevokeKeyRequest(key_id=key_id)
        reply: keys_pb2.RevokeKeyResponse = await self._send(self._keys.RevokeKey, request)
        return reply.key

    async def suspend_user(self, user: str) -> keys_pb2.SuspendedUser:
        """Refuse all credentials of a user of the tenant within 5 s, cancel their runs and hold their schedules."""
        request = keys_pb2.SuspendUserRequest(user=user)
        reply: keys_pb2.SuspendUserResponse = await self._send(self._keys.SuspendUser, request)
        return reply.user

    async def release_user(self, user: str) -> None:
        """Let a suspended user in again."""
        await self._send(self._keys.ReleaseUser, keys_pb2.ReleaseUserRequest(user=user))

    async def suspended_users(self) -> list[keys_pb2.SuspendedUser]:
        """Return the tenant's users who are suspended, the longest suspended first."""
        request = keys_pb2.ListSuspendedUsersRequest()
        reply: keys_pb2.ListSuspendedUsersResponse = await self._send(self._keys.ListSuspendedUsers, request)
        return list(reply.users)
