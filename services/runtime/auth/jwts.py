"""JSON Web Tokens: their verification, and their issuer's public keys, from a file or a JWKS address.

The kind of a key decides its algorithms, never the token. https://www.rfc-editor.org/rfc/rfc8725
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import aiohttp
import jwt
import orjson
import structlog
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from headrace.errors import Overloaded, Unauthenticated
from headrace.regular_files import read_regular_file
from services.runtime.auth.api_keys import NAME_DIGITS
from services.runtime.auth.identity import ALL_SCOPES, DEFAULT, DEFAULT_SCOPES, ROLES_MAX, Identity, is_role
from services.runtime.auth.settings import AuthSettings
from services.runtime.clock import monotonic_s
from services.runtime.ending import CannotServe
from services.runtime.files.refused_files import REFUSED_FILES
from services.runtime.net.pinned_connection import read_bounded_body

KEYS_BYTES_MAX = 1024 * 1024
FETCH_TIMEOUT_S = 5.0

AGE_S_MAX = 3600.0
"""Age at which keys are fetched again; a withdrawn key is accepted for this long."""

FETCH_INTERVAL_S = 30.0
"""Minimum time between fetches, because any caller can send unknown key ids."""

RSA_BITS_MIN = 2048

_BY_CURVE = {"secp256r1": {"ES256"}, "secp384r1": {"ES384"}, "secp521r1": {"ES512"}}

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Key:
    id: str | None
    """The key's `kid`; a key with None is tried for every token."""

    public: Any
    algorithms: frozenset[str]


class KeySource(Protocol):
    async def find_keys(self, key_id: str | None) -> list[Key]:
        """Return the keys for a token's `kid`; raises Overloaded if they cannot be fetched now."""
        ...


class FileKeys:
    def __init__(self, path: Path) -> None:
        """Read the file; raises OSError if it is unusable."""
        self.path = path
        try:
            self._keys = parse_keys(read_regular_file(path, KEYS_BYTES_MAX))
        except ValueError as error:
            raise CannotServe(f"{path}: {error}") from error

    def reload(self) -> None:
        """Read the file again; an invalid file changes nothing."""
        try:
            self._keys = parse_keys(read_regular_file(self.path, KEYS_BYTES_MAX))
        except (OSError, ValueError) as error:
            REFUSED_FILES.labels("jwt_keys").set(1)
            log.error("jwt keys refused", file=str(self.path), problem=str(error), last_good_version_stays=True)
        else:
            REFUSED_FILES.labels("jwt_keys").set(0)

    async def find_keys(self, key_id: str | None) -> list[Key]:
        return _select_keys(self._keys, key_id)


class FetchedKeys:
    """The keys at an address, fetched on demand."""

    def __init__(self, url: str, *, interval_s: float = FETCH_INTERVAL_S, age_s_max: float = AGE_S_MAX) -> None:
        self._url = url
        self._interval_s = interval_s
        self._age_s_max = age_s_max
        self._keys: Sequence[Key] = ()
        self._fetched_at = self._tried_at = -float("inf")
        self._fetching = asyncio.Lock()

    async def find_keys(self, key_id: str | None) -> list[Key]:
        if not self._has_key(key_id):
            async with self._fetching:
                # A task that waited finds the keys that the previous one fetched.
                if not self._has_key(key_id) and monotonic_s() - self._tried_at >= self._interval_s:
                    await self._fetch_keys()
        if not self._keys:
            raise Overloaded("tokens cannot be checked now: their issuer's keys are unavailable; try again later")
        return _select_keys(self._keys, key_id)

    def _has_key(self, key_id: str | None) -> bool:
        is_young = monotonic_s() - self._fetched_at < self._age_s_max
        return is_young and bool(_select_keys(self._keys, key_id))

    async def _fetch_keys(self) -> None:
        self._tried_at = monotonic_s()
        try:
            timeout = aiohttp.ClientTimeout(total=FETCH_TIMEOUT_S)
            async with (
                aiohttp.ClientSession(timeout=timeout) as http,
                http.get(self._url, allow_redirects=False) as response,
            ):
                response.raise_for_status()
                self._keys = parse_keys(await read_bounded_body(response, KEYS_BYTES_MAX))
        except (aiohttp.ClientError, OSError, ValueError) as error:  # a timeout is an OSError
            log.warning("jwt keys not fetched", url=self._url, problem=type(error).__name__, kept=len(self._keys))
        else:
            self._fetched_at = self._tried_at
            log.info("jwt keys in force", keys=len(self._keys))


def parse_keys(data: bytes) -> list[Key]:
    """Return the usable keys of a JWKS or PEM file; raises ValueError if it has none."""
    if data.lstrip().startswith(b"-----BEGIN"):
        found = [
            Key(None, public, algorithms)
            for public in [load_pem_public_key(data)]
            if (algorithms := _list_algorithms(public))
        ]
    else:
        content = orjson.loads(data)
        entries: Any = content.get("keys") if isinstance(content, dict) else None
        if not isinstance(entries, list):
            raise ValueError("expected a JWKS, or a public key in PEM")
        found = [key for entry in entries if isinstance(entry, dict) and (key := _parse_jwk(entry)) is not None]  # pyright: ignore[reportUnknownVariableType] - JSON
    if not found:
        raise ValueError("no public key in it that tokens can be verified with")
    return found


def _parse_jwk(entry: dict[str, Any]) -> Key | None:
    if entry.get("use", "sig") != "sig" or entry.get("kty") == "oct":
        return None
    try:
        public = jwt.PyJWK.from_dict(entry).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    algorithms = _list_algorithms(public)
    if "alg" in entry:
        algorithms &= {str(entry["alg"])}
    return Key(str(entry["kid"]) if "kid" in entry else None, public, algorithms) if algorithms else None


def _list_algorithms(public: Any) -> frozenset[str]:
    """Return the algorithms of a key; none if it is private or too weak."""
    if isinstance(public, RSAPublicKey) and public.key_size >= RSA_BITS_MIN:
        return frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
    if isinstance(public, EllipticCurvePublicKey):
        return frozenset(_BY_CURVE.get(public.curve.name, ()))
    if isinstance(public, Ed25519PublicKey | Ed448PublicKey):
        return frozenset({"EdDSA"})
    return frozenset()


def _select_keys(keys: Sequence[Key], key_id: str | None) -> list[Key]:
    return [key for key in keys if key_id is None or key.id in (None, key_id)]


KEYS_TRIED_MAX = 8
"""Maximum keys tried for a token without a `kid`."""

_OWN_ID = re.compile(r"[!-~]{1,100}")


@dataclass(frozen=True, slots=True)
class JwtVerifier:
    keys: KeySource
    issuer: str
    audience: str
    algorithms: frozenset[str]
    tenant_claim: str
    """Claim with the tenant's name; empty if there is only one tenant."""

    roles_claim: str
    scopes_claim: str
    """Claims with the user's roles and scopes: a list, or space-separated words. Empty: none."""

    leeway_s: float
    role_scopes: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Scopes that a role gives in addition to the token's."""

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
        """Return the identity of the token's user; raises like `verify_claims`."""
        return (await self.verify_claims(token))[0]

    async def verify_claims(self, token: str) -> tuple[Identity, dict[str, Any]]:
        """Return the identity of the token's user, and all claims.

        Raises:
            Unauthenticated: The token is not valid.
            Overloaded: The issuer's keys are not available.
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
            # The cause is logged for the operator and not shown to the caller.
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
                problem = error  # the next key may fit
        raise problem

    def _read_identity(self, claims: dict[str, Any], credential: str) -> Identity:
        tenant = claims.get(self.tenant_claim) if self.tenant_claim else DEFAULT.tenant
        # Tokens contain other programs' scopes as well.
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
    """Return a token's name for logs: its id, or the beginning of its hash if the id is missing or unsuitable."""
    own = claims.get("jti")
    if isinstance(own, str) and _OWN_ID.fullmatch(own):
        return f"jwt:{own}"
    return f"jwt:{hashlib.sha256(token.encode()).hexdigest()[:NAME_DIGITS]}"
