"""API keys: their text, their names in logs, and those of a file, which has their hashes.

{"keys": [{"sha256": "<64 hex digits>", "tenant": "acme", "user": "ada", "roles": ["finance"], "scopes": ["ask"]}]}

A key is a long random text (`openssl rand -hex 32`), so its hash needs no salt.
"""

from __future__ import annotations

import base64
import hashlib
import re
from codecs import BOM_UTF8
from pathlib import Path

import msgspec
import structlog

from headrace.regular_files import read_regular_file
from services.runtime.auth.identity import ALL_SCOPES, DEFAULT_SCOPES, FILED, ROLES_MAX, Identity
from services.runtime.ending import CannotServe
from services.runtime.files.refused_files import REFUSED_FILES
from services.runtime.randomness import new_hex

PREFIX = "hrk_"
"""Prefix of each key's text, so that scanners of repositories find leaked keys, and other texts need no look-up."""

SECRET_BYTES = 32

KEYS_MAX = 100_000
"""Maximum keys of all tenants together; every service that accepts keys holds them in memory."""

NAME_DIGITS = 12
"""Digits of a key's hash that form its name in logs."""


def make_key_text() -> str:
    """Return a new random text; its hash needs no salt."""
    return PREFIX + base64.urlsafe_b64encode(bytes.fromhex(new_hex(SECRET_BYTES))).rstrip(b"=").decode()


def name_key(sha256: bytes) -> str:
    return f"api_key:{sha256.hex()[:NAME_DIGITS]}"


FILE_BYTES_MAX = 16 * 1024 * 1024
"""Enough for about 100,000 keys."""

_SHA256 = re.compile(r"[0-9a-f]{64}")

log = structlog.get_logger()


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sha256: str
    tenant: str
    user: str
    comment: str = ""
    roles: frozenset[str] = frozenset()
    scopes: frozenset[str] = DEFAULT_SCOPES


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    keys: list[_Entry]


class ApiKeys:
    def __init__(self, path: Path) -> None:
        """Read the file; raises OSError if it is unusable."""
        self.path = path
        self._identities: dict[bytes, Identity] = {}
        self._by_credential: dict[str, Identity] = {}
        try:
            self._read()
        except ValueError as error:
            raise CannotServe(f"{path}: {error}") from error

    def reload(self) -> None:
        """Read the file again; an invalid file changes nothing."""
        try:
            self._read()
        except (OSError, ValueError) as error:
            REFUSED_FILES.labels("api_keys").set(1)
            log.error("api keys refused", file=str(self.path), problem=str(error), last_good_version_stays=True)
        else:
            REFUSED_FILES.labels("api_keys").set(0)
            log.info("api keys in force", keys=len(self._identities))

    def _read(self) -> None:
        self._identities = _read_keys(self.path)
        self._by_credential = {who.credential: who for who in self._identities.values()}

    def find_identity(self, key: str) -> Identity | None:
        # The duration of the look-up reveals only the hash.
        return self._identities.get(hashlib.sha256(key.encode()).digest())

    def has_user(self, tenant: str, user: str) -> bool:
        return any((who.tenant, who.user) == (tenant, user) for who in self._identities.values())

    def find_holder(self, who: Identity) -> Identity | None:
        """Return the holder of the key that `who` presented; None if the file does not have it for this user."""
        found = self._by_credential.get(who.credential)
        return found if found == who else None


def _read_keys(path: Path) -> dict[bytes, Identity]:
    found: dict[bytes, Identity] = {}
    for index, entry in enumerate(
        msgspec.json.decode(read_regular_file(path, FILE_BYTES_MAX).removeprefix(BOM_UTF8), type=_File).keys
    ):
        if not _SHA256.fullmatch(entry.sha256):
            raise ValueError(f"keys[{index}].sha256: expected 64 lower-case hex digits")
        credential = name_key(bytes.fromhex(entry.sha256))
        identity = Identity(entry.tenant, entry.user, credential, entry.roles, entry.scopes, FILED)
        if unknown := entry.scopes - ALL_SCOPES:
            raise ValueError(
                f"keys[{index}].scopes: {min(unknown)!r}: expected some of {', '.join(sorted(ALL_SCOPES))}"
            )
        if not identity.is_valid:
            raise ValueError(
                f"keys[{index}]: tenant and user: expected 1 to 128 visible ASCII characters each;"
                f" roles: up to {ROLES_MAX} of 1 to 64 without commas"
            )
        if found.setdefault(bytes.fromhex(entry.sha256), identity) != identity:
            raise ValueError(f"keys[{index}].sha256: is another user's too")
    return found
