"""Settings of authentication, the same for all services."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from services.runtime.auth.identity import ALL_SCOPES, is_role

NONE, PEERS, JWT, API_KEY = "none", "peers", "jwt", "api_key"

ALGORITHMS = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"})
"""Algorithms with a public key; with a shared secret, every verifier could sign."""

INTERNAL_TOKEN_CHARS_MIN = 32

KEYS_POLL_S_MAX = 3.0

_LOOPBACK = ("127.", "localhost:", "[::1]:", "::1:", "unix:", "local:")
_TRUST_DOMAIN = re.compile(r"[a-z0-9._-]{1,255}")
_NEEDED_BY_JWT = ("AUTH_JWT_ISSUER", "AUTH_JWT_AUDIENCE")


def _setting(default: Any, name: str, *, secret: bool = False) -> Any:
    return field(default=default, metadata={"name": f"HEADRACE_{name}", "secret": secret}, repr=not secret)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthSettings:
    auth: str = _setting(NONE, "AUTH")
    """The credential of clients: `jwt`, `api_key`, or `jwt,api_key` for either; `peers` admits only services. `none`
    makes all callers one user, and is refused at addresses that other machines can reach."""

    allow_unauthenticated: bool = _setting(False, "ALLOW_UNAUTHENTICATED")
    """Whether `none` may listen at addresses that other machines can reach, and serve other users of this machine: for
    networks in which everyone may do everything."""

    internal_token: str = _setting("", "INTERNAL_TOKEN", secret=True)
    """A secret of 32 ASCII characters or more, the same for all services, with which they authenticate each other if
    they have no certificates."""

    api_keys_file: Path | None = _setting(None, "AUTH_API_KEYS_FILE")
    """File with the SHA-256 of each API key, its tenant and its user; changes take effect within a second. `api_key`
    without `jwt` needs it: a key of the file creates the first stored key; with `jwt`, a token can do that."""

    keys_poll_s: float = _setting(1.0, "AUTH_KEYS_POLL_S")
    """Poll interval in seconds for changes of API keys in memory, at most 3, so that a revoked key is refused within
    5."""

    keys_good_s: float = _setting(60.0, "AUTH_KEYS_GOOD_S")
    """How long, in seconds, API keys read from memory remain valid while memory is unavailable; after that they are
    refused with OVERLOADED until it returns."""

    jwks_url: str = _setting("", "AUTH_JWKS_URL")
    """URL of the keys of the tokens' issuer. `jwt` needs this or HEADRACE_AUTH_JWT_KEYS_FILE, not both."""

    jwt_keys_file: Path | None = _setting(None, "AUTH_JWT_KEYS_FILE")
    """The issuer's keys as a file: a JWKS, or one public key in PEM."""

    jwt_issuer: str = _setting("", "AUTH_JWT_ISSUER")
    """Required `iss` of a token; `jwt` needs it."""

    jwt_audience: str = _setting("", "AUTH_JWT_AUDIENCE")
    """Required `aud` of a token; `jwt` needs it."""

    jwt_algorithms: str = _setting("RS256,ES256,EdDSA", "AUTH_JWT_ALGORITHMS")
    """Accepted signature algorithms of tokens, separated by commas; algorithms with a shared secret (HS256) are not
    supported."""

    jwt_tenant_claim: str = _setting("tenant", "AUTH_JWT_TENANT_CLAIM")
    """The claim with the tenant's name; empty: all users belong to one tenant. The user is `sub`."""

    jwt_roles_claim: str = _setting("roles", "AUTH_JWT_ROLES_CLAIM")
    """The claim with the user's roles, used by rules for answers: a list, or space-separated words. Up to 64 are used,
    of 64 visible ASCII characters without commas; others are ignored."""

    jwt_scopes_claim: str = _setting("scope", "AUTH_JWT_SCOPES_CLAIM")
    """The claim with the token's scopes, in the same forms: `ask`, `answer`, `operate`, `read_content`, `publish`,
    `admin`. Other words are ignored; a token with none of these has `ask` and `answer`."""

    jwt_role_scopes: str = _setting("", "AUTH_JWT_ROLE_SCOPES")
    """Scopes that a role gives in addition to the token's: `platform-team: operate read_content; security: admin`. For
    directories that have groups but no scopes."""

    jwt_leeway_s: float = _setting(30.0, "AUTH_JWT_LEEWAY_S")
    """Tolerance for the issuer's clock, in seconds."""

    trust_domain: str = _setting("headrace", "AUTH_TRUST_DOMAIN")
    """The name of this installation in its services' certificates, `spiffe://<it>/<service>`. Services of an
    installation with another name, even with certificates of the same CA, are clients without a credential."""

    def __post_init__(self) -> None:
        if not self.methods <= {NONE, PEERS, JWT, API_KEY} or (len(self.methods) > 1 and {NONE, PEERS} & self.methods):
            raise ValueError(f"HEADRACE_AUTH: {self.auth!r}: expected none, peers, jwt, api_key or jwt,api_key")
        if 0 < len(self.internal_token) < INTERNAL_TOKEN_CHARS_MIN or not self.internal_token.isascii():
            raise ValueError(f"HEADRACE_INTERNAL_TOKEN: expected {INTERNAL_TOKEN_CHARS_MIN} ASCII characters or more")
        if self.methods == frozenset({API_KEY}) and self.api_keys_file is None:
            raise ValueError("HEADRACE_AUTH_API_KEYS_FILE: api_key needs it")
        if not 0 < self.keys_poll_s <= KEYS_POLL_S_MAX:
            raise ValueError(f"HEADRACE_AUTH_KEYS_POLL_S: expected more than 0, and {KEYS_POLL_S_MAX:g} at most")
        if not _TRUST_DOMAIN.fullmatch(self.trust_domain):
            raise ValueError(
                f"HEADRACE_AUTH_TRUST_DOMAIN: {self.trust_domain!r}: expected 1 to 255 of a-z, 0-9, '.', '-' and '_'"
            )
        self._check_role_scopes()
        if JWT in self.methods:
            self._check_jwt()

    @property
    def methods(self) -> frozenset[str]:
        return frozenset(word.strip() for word in self.auth.split(","))

    @property
    def is_none(self) -> bool:
        return self.auth.strip() == NONE

    @property
    def algorithms(self) -> frozenset[str]:
        return frozenset(name.strip() for name in self.jwt_algorithms.split(","))

    @property
    def role_scopes(self) -> dict[str, frozenset[str]]:
        """The scopes of `jwt_role_scopes` by role."""
        given = [entry.partition(":") for entry in self.jwt_role_scopes.split(";") if entry.strip()]
        return {role.strip(): frozenset(scopes.split()) for role, _, scopes in given}

    def check_addresses(self, addresses: Iterable[str], *, has_certificates: bool) -> None:
        if self.is_none:
            if not self.allow_unauthenticated and (open_to := [at for at in addresses if not is_local_address(at)]):
                raise ValueError(
                    f"HEADRACE_AUTH: none, and {open_to[0]} is not on this machine alone: set jwt or api_key, peers "
                    "for what only services call, or HEADRACE_ALLOW_UNAUTHENTICATED where the network lets nobody in"
                )
        elif not (self.internal_token or has_certificates):
            raise ValueError(
                f"HEADRACE_INTERNAL_TOKEN: {self.auth} needs it, or certificates: services must know each other"
            )

    def _check_role_scopes(self) -> None:
        for role, scopes in self.role_scopes.items():
            if not is_role(role) or not scopes or not scopes <= ALL_SCOPES:
                raise ValueError(
                    f"HEADRACE_AUTH_JWT_ROLE_SCOPES: {role!r}: expected `role: scope scope; role: scope` with scopes "
                    f"of {', '.join(sorted(ALL_SCOPES))}"
                )

    def _check_jwt(self) -> None:
        if bool(self.jwks_url) == (self.jwt_keys_file is not None):
            raise ValueError("HEADRACE_AUTH_JWKS_URL, HEADRACE_AUTH_JWT_KEYS_FILE: jwt needs exactly one of them")
        # Without them, a token of another issuer, or for another audience, would be accepted.
        for name in _NEEDED_BY_JWT:
            if not getattr(self, name.removeprefix("AUTH_").lower()):
                raise ValueError(f"HEADRACE_{name}: jwt needs it")
        if self.jwks_url and not self.jwks_url.startswith(("https://", "http://127.", "http://localhost")):
            raise ValueError("HEADRACE_AUTH_JWKS_URL: expected https://…")
        if unfit := self.algorithms - ALGORITHMS:
            raise ValueError(
                f"HEADRACE_AUTH_JWT_ALGORITHMS: {sorted(unfit)[0]!r}: expected some of {', '.join(sorted(ALGORITHMS))}"
            )


def is_local_address(address: str) -> bool:
    return address.strip().startswith(_LOOPBACK)
