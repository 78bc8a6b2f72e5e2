"""Keys, tokens and gates for tests."""

import hashlib
import time
from pathlib import Path
from typing import Any

import jwt
import orjson
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt import algorithms

from services.runtime.auth.settings import AuthSettings

ISSUER, AUDIENCE = "https://issuer.example", "headrace"
INTERNAL = "the-suite-s-own-secret-of-this-test-run"

RSA = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()


def claims(**changed: Any) -> dict[str, Any]:
    """Return the claims of a valid token; None omits a claim."""
    now = int(time.time())
    given = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "tenant": "acme", "iat": now, "exp": now + 60} | changed
    return {key: value for key, value in given.items() if value is not None}


def token(key: Any = RSA, algorithm: str = "RS256", kid: str | None = "k1", **changed: Any) -> str:
    return jwt.encode(claims(**changed), key, algorithm, headers={"kid": kid} if kid else None)


def jwk(key: Any, kid: str | None = "k1", **more: Any) -> dict[str, Any]:
    """Return the public half of a key as a JWK."""
    kinds = {rsa.RSAPrivateKey: algorithms.RSAAlgorithm, ec.EllipticCurvePrivateKey: algorithms.ECAlgorithm}
    algorithm: Any = next((found for kind, found in kinds.items() if isinstance(key, kind)), algorithms.OKPAlgorithm)
    return algorithm.to_jwk(key.public_key(), as_dict=True) | ({"kid": kid} if kid else {}) | more


def jwks(*keys: dict[str, Any]) -> bytes:
    return orjson.dumps({"keys": keys})


def pem(key: Any) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def jwt_settings(folder: Path, keys: bytes | None = None, **changed: Any) -> AuthSettings:
    """Settings of a service that takes tokens signed with RSA."""
    file = folder / "jwks.json"
    file.write_bytes(keys or jwks(jwk(RSA)))
    given: dict[str, Any] = {
        "auth": "jwt",
        "jwt_keys_file": file,
        "jwt_issuer": ISSUER,
        "jwt_audience": AUDIENCE,
        "internal_token": INTERNAL,
    }
    return AuthSettings(**(given | changed))


def keys_file(folder: Path, **users: str) -> Path:
    """A file of API keys; each name is a key, and its value `tenant/user`, or `tenant/user roles scopes`."""
    entries: list[dict[str, Any]] = []
    for key, value in users.items():
        owner, *words = value.split(" ")
        tenant, _, user = owner.partition("/")
        entry: dict[str, Any] = {"sha256": hashlib.sha256(key.encode()).hexdigest(), "tenant": tenant, "user": user}
        for field, listed in zip(("roles", "scopes"), words, strict=False):
            entry[field] = listed.split(",")
        entries.append(entry)
    path = folder / "api_keys.json"
    path.write_bytes(orjson.dumps({"keys": entries}))
    return path


def key_settings(folder: Path, **users: str) -> AuthSettings:
    """Settings of a service that takes API keys."""
    return AuthSettings(auth="api_key", api_keys_file=keys_file(folder, **users), internal_token=INTERNAL)
