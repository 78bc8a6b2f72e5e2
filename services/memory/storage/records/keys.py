"""API keys as they are stored: one JSON object each, with a hash in place of the key's text."""

from __future__ import annotations

import msgspec


class StoredKey(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Times are Unix milliseconds, 0 for none."""

    key_id: str
    tenant: str
    user: str
    version: int
    """Number of changes, which fences those that read an older one."""
    sha256: str
    """Of the key's text, as hex digits."""
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
    """0: no limit of its own."""
    requests_per_minute: int = 0
    """0: no limit."""
    makers: tuple[str, ...] = ()
    """Users who know its text, beside its own; one of an earlier version has none, and `created_by` is it."""
    is_unconfirmed: bool = False
    confirmed_by: str = ""
    suspends: bool = False
    """Whether it is no key, but says that its user is suspended, for as long as it is not revoked. It is kept here so
    that every service hears of it with the keys."""
    revision: int = 0
    """Place of its last change among those of all keys, which the store gives it."""

    def find_state(self, now: int) -> str:
        if self.revoked_at:
            return "revoked"
        if 0 < self.expires_at <= now:
            return "expired"
        if self.is_unconfirmed:
            return "unconfirmed"
        return "disabled" if self.disabled else "active"

    def list_makers(self) -> tuple[str, ...]:
        """List the users who know its text, beside its own."""
        is_own = self.user in (self.created_by, self.confirmed_by)
        return self.makers or (() if is_own else (self.created_by,))

    def find_end(self, now: int) -> int:
        """Return when it has ended for good; 0: it has not."""
        return self.revoked_at or (self.expires_at if 0 < self.expires_at <= now else 0)


_DECODER = msgspec.json.Decoder(StoredKey)


def encode_key(key: StoredKey) -> bytes:
    return msgspec.json.encode(key) + b"\n"


def decode_key(data: bytes) -> StoredKey:
    """Raises msgspec.DecodeError if it is none."""
    return _DECODER.decode(data)
