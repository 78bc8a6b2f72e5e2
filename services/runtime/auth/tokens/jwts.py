"""Verification of JSON Web Tokens. https://www.rfc-editor.org/rfc/rfc8725"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jwt
import structlog

from headrace.errors import Unauthenticated
from services.runtime.auth.identity import ALL_SCOPES, DEFAULT, DEFAULT_SCOPES, ROLES_MAX, Identity, is_role
from services.runtime.auth.keys.key_text import NAME_DIGITS
from services.runtime.auth.settings import AuthSettings
from services.runtime.auth.tokens.jwt_keys import KeySource

KEYS_TRIED_MAX = 8
"""Keys that are tried for a token that names none."""

_OWN_ID = re.compile(r"[!-~]{1,100}")

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class JwtVerifier:
    keys: KeySource
    issuer: str
    audience: str
    algorithms: frozenset[str]
    tenant_claim: str
    """The claim that names the tenant; empty if there is one tenant."""

    roles_claim: str
    scopes_claim: str
    """Claims with the user's roles and scopes: a list, or words with spaces between. Empty: none."""

    leeway_s: float
    role_scopes: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Scopes that a role gives beside those of the token."""

    @classmethod
    def from_settings(cls, settings: AuthSettings, keys: KeySource, issuer: str, audience: str) -> JwtVerifier:
        return cls(
            keys,
            issuer,
            audience,
            settings.algorithms,
            settings.jwt_tenant_claim,
            settings.jwt_roles_claim,
            settings.jwt_scopes_claim,
            settings.jwt_leeway_s,
            settings.role_scopes,
        )

    async def verify_token(self, token: str) -> Identity:
        """Return the identity of the token's user; raises as `verify_claims` does."""
        return (await self.verify_claims(token))[0]

    async def verify_claims(self, token: str) -> tuple[Identity, dict[str, Any]]:
        """Return the identity of the token's user, and all that the token says.

        Raises:
            Unauthenticated: The token is not valid. Overloaded: The issuer's keys cannot be had.
        """
        try:
            header = jwt.get_unverified_header(token)
            key_id = header.get("kid")
            keys = await self.keys.find_keys(key_id if isinstance(key_id, str) else None)
            claims = self._verify_claims(token, [key for key in keys if header.get("alg") in key.algorithms])
            return self._read_identity(claims, _name_token(token, claims)), claims
        except jwt.ExpiredSignatureError as error:
            raise Unauthenticated("the token has expired; get a new one") from error
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            # Which of its parts is wrong is for the operator, not for who tries.
            log.info("token refused", problem=type(error).__name__)
            raise Unauthenticated("the token is not valid here") from error

    def _verify_claims(self, token: str, keys: list[Any]) -> dict[str, Any]:
        problem: jwt.PyJWTError = jwt.InvalidKeyError("no key for it")
        for key in keys[:KEYS_TRIED_MAX]:
            try:
                return jwt.decode(
                    token,
                    key.public,
                    algorithms=sorted(self.algorithms & key.algorithms),
                    issuer=self.issuer,
                    audience=self.audience,
                    leeway=self.leeway_s,
                    options={"require": ["exp", "iss", "aud", "sub"]},
                )
            except jwt.InvalidSignatureError as error:
                problem = error  # the next key may be the one
        raise problem

    def _read_identity(self, claims: dict[str, Any], credential: str) -> Identity:
        tenant = claims.get(self.tenant_claim) if self.tenant_claim else DEFAULT.tenant
        # Tokens name other programs' scopes as well.
        scopes = (_read_words(claims.get(self.scopes_claim)) & ALL_SCOPES) or DEFAULT_SCOPES
        roles = _read_words(claims.get(self.roles_claim))
        identity = Identity(
            tenant if isinstance(tenant, str) else "",
            str(claims["sub"]),
            credential,
            frozenset(sorted(filter(is_role, roles))[:ROLES_MAX]),
            scopes.union(*(self.role_scopes[role] for role in roles & self.role_scopes.keys())),
            ends_at=int((claims["exp"] + self.leeway_s) * 1000),
        )
        if not identity.is_valid:
            raise ValueError("the names of tenant, user and roles")
        return identity


def _read_words(claim: Any) -> frozenset[str]:
    words = claim.split() if isinstance(claim, str) else claim
    return frozenset(word for word in words if isinstance(word, str)) if isinstance(words, list) else frozenset()


def _name_token(token: str, claims: dict[str, Any]) -> str:
    """Name a token in logs: by its own id, or where that is none that fits by the beginning of its hash."""
    own = claims.get("jti")
    if isinstance(own, str) and _OWN_ID.fullmatch(own):
        return f"jwt:{own}"
    return f"jwt:{hashlib.sha256(token.encode()).hexdigest()[:NAME_DIGITS]}"
