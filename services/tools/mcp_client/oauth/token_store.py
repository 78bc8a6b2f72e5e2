"""Stores users' tokens and pending authorizations as encrypted files.

data_dir/mcp_tokens/<server>/: <user>.token, <user>-<state>.pending and <authorization server>.client, Headrace's
registration there; each name is a hash. Replicas may share the files. These functions block.
"""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
import time
from collections.abc import Collection
from pathlib import Path
from typing import TypeVar

import msgspec
import structlog

from services.runtime.auth.identity import Identity
from services.runtime.files.disk import disk_errors

WHAT = "a user's token"

PENDING_S = 3600.0
"""Time for a user to consent."""

PENDING_MAX, USER_PENDING_MAX = 10_000, 16
"""Maximum pending authorizations of a server, and of one of its users; the oldest are dropped."""

T = TypeVar("T")

log = structlog.get_logger()


class Client(msgspec.Struct, frozen=True):
    """Headrace's client identity at an authorization server."""

    client_id: str
    client_secret: str = ""
    auth_method: str = "none"
    is_registered: bool = False
    """Whether Headrace has registered itself."""
    scope: str = ""
    """Scopes for which it is registered, separated by spaces; empty: not stated."""
    expires_at: float = 0.0
    """End of its secret in Unix seconds; 0: none."""

    def is_usable(self, scope: str) -> bool:
        """Return whether an authorization with `scope` can be requested with it."""
        has_scope = not self.scope or set(scope.split()) <= set(self.scope.split())
        return has_scope and not 0 < self.expires_at <= time.time() + PENDING_S


class Issuer(msgspec.Struct, frozen=True):
    """Origin of tokens: the authorization server, and the fixed parts of each request to it."""

    issuer: str
    token_endpoint: str
    resource: str
    client: Client
    revocation_endpoint: str = ""
    """Where tokens are revoked (RFC 7009); empty if not supported."""


class Pending(msgspec.Struct, frozen=True):
    """A user's pending authorization."""

    server: str
    tenant: str
    user: str
    issuer: Issuer
    verifier: str
    redirect_url: str
    says_issuer: bool
    made_at: float
    scope: str = ""


class Token(msgspec.Struct, frozen=True):
    server: str
    tenant: str
    user: str
    issuer: Issuer
    access: str
    refresh: str = ""
    expires_at: float = 0.0
    """Unix seconds; 0 if not given."""
    agreed_at: float = 0.0
    """Time of the user's consent, in Unix seconds."""
    scope: str = ""
    """Scopes that were asked for, separated by spaces."""

    @property
    def header(self) -> str:
        return f"Bearer {self.access}"


class TokenStore:
    def __init__(self, root: Path, key: str) -> None:
        """`key` is any text. Raises ValueError without one."""
        if not key:
            raise ValueError("oauth: HEADRACE_TOOLS_SECRETS_KEY is not set")
        from cryptography.fernet import Fernet  # 7 MB, which tools without such servers do not need

        self._root = root
        self._cipher = Fernet(base64.urlsafe_b64encode(hashlib.sha256(key.encode()).digest()))

    def put_token(self, token: Token) -> None:
        self._write(self._find_folder(token.server) / f"{_hash(token.tenant, token.user)}.token", token)

    def put_renewed(self, before: Token, renewed: Token) -> bool:
        """Store a renewed token; return False if the user has revoked the old one in the meantime."""
        if self.find_token(before.server, Identity(before.tenant, before.user)) is None:
            return False
        self.put_token(renewed)
        return True

    def list_tokens(self, caller: Identity) -> list[Token]:
        """Return the caller's tokens, ordered by server."""
        paths = self._root.glob(f"*/{_hash(caller.tenant, caller.user)}.token")
        tokens = [token for path in paths if (token := self._read(path, Token)) is not None]
        return sorted(tokens, key=lambda token: token.server)

    def take_token(self, server: str, caller: Identity) -> Token | None:
        """Delete the caller's token and return it; None without one."""
        path = self._find_folder(server) / f"{_hash(caller.tenant, caller.user)}.token"
        token = self._read(path, Token)
        with disk_errors(WHAT, path.name):
            path.unlink(missing_ok=True)
        return token

    def find_token(self, server: str, caller: Identity) -> Token | None:
        return self._read(self._find_folder(server) / f"{_hash(caller.tenant, caller.user)}.token", Token)

    def delete_token(self, token: Token) -> None:
        """Delete the token; a newer one is kept."""
        path = self._find_folder(token.server) / f"{_hash(token.tenant, token.user)}.token"
        if (kept := self._read(path, Token)) is not None and kept.access == token.access:
            path.unlink(missing_ok=True)

    def delete_all_of(self, tenant: str, user: str, kept: Collection[str] = ()) -> list[Token]:
        """Delete the tokens and pending authorizations of a user, or of all users of the tenant except `kept`; return
        the tokens."""
        removed: list[Token] = []
        for path in [*self._root.glob("*/*.token"), *self._root.glob("*/*.pending")]:
            found = self._read(path, Token) if path.suffix == ".token" else self._read(path, Pending)
            if found is None or found.tenant != tenant or user not in ("", found.user) or found.user in kept:
                continue
            path.unlink(missing_ok=True)
            if isinstance(found, Token):
                removed.append(found)
        return removed

    def put_pending(self, state: str, pending: Pending) -> None:
        folder, user = self._find_folder(pending.server), _hash(pending.tenant, pending.user)
        for paths, most in (
            (folder.glob(f"{user}-*.pending"), USER_PENDING_MAX),
            (folder.glob("*.pending"), PENDING_MAX),
        ):
            oldest_first = sorted(paths, key=_get_time)
            surplus = len(oldest_first) - most + 1
            for number, path in enumerate(oldest_first):
                if number < surplus or _get_time(path) < time.time() - PENDING_S:
                    path.unlink(missing_ok=True)
        self._write(folder / f"{user}-{_hash(state)}.pending", pending)

    def take_pending(self, state: str, caller: Identity) -> Pending | None:
        """Return the state's pending authorization and delete it; None, without deletion, if it is not the caller's."""
        for path in self._root.glob(f"*/{_hash(caller.tenant, caller.user)}-{_hash(state)}.pending"):
            pending = self._read(path, Pending)
            if pending is None:
                return None
            try:
                path.unlink()
            except FileNotFoundError:  # another call has taken it
                return None
            return pending if pending.made_at > time.time() - PENDING_S else None
        return None

    def put_client(self, server: str, issuer: str, redirect_url: str, client: Client) -> None:
        self._write(self._find_client(server, issuer, redirect_url), client)

    def take_client(self, server: str, issuer: str, redirect_url: str) -> Client | None:
        """Delete the registration and return it; a successful authorization stores it again.

        If the authorization server has forgotten it, only the user's browser sees that. Deleting it first means that it
        is tried only once more.
        """
        path = self._find_client(server, issuer, redirect_url)
        client = self._read(path, Client)
        path.unlink(missing_ok=True)
        return client

    def _find_client(self, server: str, issuer: str, redirect_url: str) -> Path:
        return self._find_folder(server) / f"{_hash(issuer, redirect_url)}.client"

    def _find_folder(self, server: str) -> Path:
        return self._root / _hash(server)

    def _write(self, path: Path, value: msgspec.Struct) -> None:
        with disk_errors(WHAT, path.name):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            temporary = path.parent / f"{secrets.token_hex(8)}.tmp"
            try:
                with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
                    file.write(self._cipher.encrypt(msgspec.json.encode(value)))
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(temporary, path)
            finally:
                temporary.unlink(missing_ok=True)

    def _read(self, path: Path, kind: type[T]) -> T | None:
        from cryptography.fernet import InvalidToken

        with disk_errors(WHAT, path.name):
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                return None
        try:
            return msgspec.json.decode(self._cipher.decrypt(data), type=kind)
        except (InvalidToken, msgspec.DecodeError):  # of another key, or an earlier version
            log.warning("token unreadable", file=path.name)
            return None


def _hash(*names: str) -> str:
    return hashlib.sha256("\0".join(names).encode()).hexdigest()


def _get_time(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
