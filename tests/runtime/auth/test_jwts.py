"""Which tokens are accepted, and whom they identify."""

import asyncio
import base64
import hashlib
import hmac
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from headrace.errors import Overloaded, Unauthenticated
from services.runtime.auth.identity import Identity
from services.runtime.auth.jwts import FetchedKeys, JwtVerifier, parse_keys
from services.runtime.auth.setup import open_authenticator
from tests.support.issuing import AUDIENCE, EC, ED, ISSUER, RSA, claims, jwk, jwks, jwt_settings, pem, token
from tests.support.web_server import serving_web

ADA = Identity("acme", "ada")


async def identify_token(folder: Path, token_text: str, keys: bytes | None = None, **changes: Any) -> Identity:
    async with open_authenticator(jwt_settings(folder, keys, **changes), has_certificates=False) as gate:
        return await gate.identify_client({"authorization": f"Bearer {token_text}"})


def part(value: Any) -> bytes:
    return base64.urlsafe_b64encode(orjson.dumps(value)).rstrip(b"=")


def make_token_by_hand(header: dict[str, Any], secret: bytes | None = None) -> str:
    """Return a token signed with a secret, or not at all."""
    signed = part(header) + b"." + part(claims())
    signature = hmac.digest(secret, signed, hashlib.sha256) if secret is not None else b""
    return (signed + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")).decode()


async def test_a_token_names_tenant_and_user(tmp_path: Path) -> None:
    assert await identify_token(tmp_path, token()) == ADA
    assert await identify_token(tmp_path, token(), pem(RSA)) == ADA
    assert await identify_token(tmp_path, token(sub="auth0|7", tenant="b")) == Identity("b", "auth0|7")
    assert await identify_token(tmp_path, token(), jwt_tenant_claim="") == Identity("default", "ada")


async def test_a_token_is_named_by_its_id_or_its_hash(tmp_path: Path) -> None:
    assert (await identify_token(tmp_path, token(jti="7f3a"))).credential == "jwt:7f3a"
    for unusable in ({}, {"jti": "two words"}, {"jti": "x" * 101}):
        token_text = token(**unusable)
        token_hash = hashlib.sha256(token_text.encode()).hexdigest()[:12]
        assert (await identify_token(tmp_path, token_text)).credential == f"jwt:{token_hash}"


@pytest.mark.parametrize(
    ("given", "roles", "scopes"),
    [
        ({}, set(), {"ask", "answer"}),
        ({"roles": ["finance", "board"], "scope": "openid operate ask"}, {"finance", "board"}, {"operate", "ask"}),
        ({"roles": "finance board", "scope": "openid email"}, {"finance", "board"}, {"ask", "answer"}),
        ({"roles": ["Domain Users", "a,b", 7, "x" * 65, "", "ops"], "scope": ["admin"]}, {"ops"}, {"admin"}),
        ({"roles": {"ops": True}, "scope": 7}, set(), {"ask", "answer"}),
        ({"roles": [f"r{n:03}" for n in range(100)]}, {f"r{n:03}" for n in range(64)}, {"ask", "answer"}),
    ],
)
async def test_a_token_names_roles_and_scopes(
    given: dict[str, Any], roles: set[str], scopes: set[str], tmp_path: Path
) -> None:
    found = await identify_token(tmp_path, token(**given))
    assert (found.roles, found.scopes) == (roles, scopes)
    named = await identify_token(tmp_path, token(groups=["ops"]), jwt_roles_claim="groups", jwt_scopes_claim="")
    assert named.roles == {"ops"}


@pytest.mark.parametrize(("key", "algorithm"), [(RSA, "PS256"), (EC, "ES256"), (ED, "EdDSA")])
async def test_every_kind_of_public_key_verifies(key: Any, algorithm: str, tmp_path: Path) -> None:
    keys = jwks(jwk(RSA, "other"), jwk(EC, "another"), jwk(key, "k1"))
    assert await identify_token(tmp_path, token(key, algorithm), keys, jwt_algorithms=algorithm) == ADA
    assert await identify_token(tmp_path, token(key, algorithm, kid=None), keys, jwt_algorithms=algorithm) == ADA


@pytest.mark.parametrize(
    "changes",
    [
        {"exp": 1000},
        {"exp": None},
        {"nbf": 9_999_999_999},
        {"iss": "https://other.example"},
        {"iss": None},
        {"aud": "other"},
        {"aud": None},
        {"sub": None},
        {"sub": ""},
        {"sub": 7},
        {"sub": "a b"},
        {"sub": "x" * 129},
        {"sub": "ä"},
        {"tenant": None},
        {"tenant": ""},
        {"tenant": ["acme"]},
        {"tenant": "a\nb"},
    ],
)
async def test_a_token_with_a_wrong_claim_is_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(Unauthenticated):
        await identify_token(tmp_path, token(**changes))


async def test_the_issuers_clock_may_be_slightly_wrong(tmp_path: Path) -> None:
    late = int(claims()["iat"]) - 10
    assert await identify_token(tmp_path, token(exp=late)) == ADA
    with pytest.raises(Unauthenticated, match="expired"):
        await identify_token(tmp_path, token(exp=late), jwt_leeway_s=1.0)


@pytest.mark.parametrize(
    "token_text",
    [
        make_token_by_hand({"alg": "none", "typ": "JWT"}),
        make_token_by_hand({"alg": "HS256", "kid": "k1"}, pem(RSA)),  # the public key as the secret
        make_token_by_hand({"alg": "HS256", "kid": "k1"}, b""),
        token(EC, "ES256", kid="k1"),  # not the kind of the key
        token(algorithm="RS512"),  # not allowed
        token(kid="unknown"),
        token()[:-8] + "AAAAAAAA",
        "a.b.c",
        "..",
        "ey.é.x",
        make_token_by_hand({"alg": ["RS256"], "kid": "k1"}, b"x"),
        make_token_by_hand({"kid": {"a": 1}}, b"x"),
    ],
)
async def test_a_token_with_an_invalid_signature_is_refused(token_text: str, tmp_path: Path) -> None:
    with pytest.raises(Unauthenticated):
        await identify_token(tmp_path, token_text)


@pytest.mark.parametrize(
    "keys",
    [
        b"{}",
        b'{"keys": 3}',
        b'{"keys": [1, {"kty": "what"}]}',
        jwks({"kty": "oct", "k": "AAAA"}),
        jwks(jwk(RSA, use="enc")),
        b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
    ],
)
def test_keys_that_cannot_verify_are_rejected(keys: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whichever library finds it
        parse_keys(keys)


async def test_a_changed_key_file_takes_effect_and_a_bad_one_does_not(tmp_path: Path) -> None:
    settings = jwt_settings(tmp_path)
    async with asyncio.timeout(100), open_authenticator(settings, has_certificates=False) as gate:
        assert await gate.identify_client({"authorization": f"Bearer {token()}"}) == ADA
        assert settings.jwt_keys_file is not None
        settings.jwt_keys_file.write_bytes(jwks(jwk(EC)))
        while True:
            try:
                await gate.identify_client({"authorization": f"Bearer {token()}"})
            except Unauthenticated:
                break
            await asyncio.sleep(0.05)


class Issuer:
    """Publishes keys, and counts the requests for them."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.request_count = 0
        self.is_away = False

    async def answer(self, _: web.Request) -> web.Response:
        self.request_count += 1
        await asyncio.sleep(0.02)
        return web.Response(status=503) if self.is_away else web.Response(body=self.body)


@asynccontextmanager
async def publishing(issuer: Issuer) -> AsyncGenerator[str]:
    async with serving_web(issuer.answer) as port:
        yield f"http://127.0.0.1:{port}/jwks"


def make_verifier(keys: FetchedKeys) -> JwtVerifier:
    return JwtVerifier(keys, ISSUER, AUDIENCE, frozenset({"RS256", "ES256"}), "tenant", "roles", "scope", 0)


async def test_keys_are_fetched_once_and_again_for_a_new_key_id_at_a_limited_rate() -> None:
    issuer = Issuer(jwks(jwk(RSA)))
    async with publishing(issuer) as url:
        fetched = FetchedKeys(url, interval_s=0.2)
        verifier = make_verifier(fetched)
        assert await asyncio.gather(*(verifier.verify_token(token()) for _ in range(20))) == [ADA] * 20
        assert issuer.request_count == 1
        issuer.body = jwks(jwk(RSA), jwk(EC, "k2"))
        for _ in range(5):
            with pytest.raises(Unauthenticated):
                await verifier.verify_token(token(EC, "ES256", kid="k2"))
        assert issuer.request_count == 1
        await asyncio.sleep(0.2)
        assert await verifier.verify_token(token(EC, "ES256", kid="k2")) == ADA
        assert issuer.request_count == 2


async def test_an_unavailable_issuer_does_not_invalidate_known_keys() -> None:
    issuer = Issuer(jwks(jwk(RSA)))
    issuer.is_away = True
    async with publishing(issuer) as url:
        verifier = make_verifier(FetchedKeys(url, interval_s=0.0, age_s_max=0.0))
        with pytest.raises(Overloaded, match="try again"):
            await verifier.verify_token(token())
        issuer.is_away = False
        assert await verifier.verify_token(token()) == ADA
        issuer.is_away = True
        assert await verifier.verify_token(token()) == ADA


async def test_an_issuer_that_sends_too_much_counts_as_unavailable() -> None:
    issuer = Issuer(jwks(jwk(RSA)) + b" " * (1024 * 1024))
    async with publishing(issuer) as url:
        with pytest.raises(Overloaded):
            await make_verifier(FetchedKeys(url)).verify_token(token())
