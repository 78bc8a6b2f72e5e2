"""Which tokens are taken, and for whom."""

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


async def whose(folder: Path, shown: str, keys: bytes | None = None, **changed: Any) -> Identity:
    async with open_authenticator(jwt_settings(folder, keys, **changed), has_certificates=False) as gate:
        return await gate.identify_client({"authorization": f"Bearer {shown}"})


def part(value: Any) -> bytes:
    return base64.urlsafe_b64encode(orjson.dumps(value)).rstrip(b"=")


def by_hand(header: dict[str, Any], secret: bytes | None = None) -> str:
    """A token signed with a secret, or not at all."""
    signed = part(header) + b"." + part(claims())
    signature = hmac.digest(secret, signed, hashlib.sha256) if secret is not None else b""
    return (signed + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")).decode()


async def test_a_token_names_tenant_and_user(tmp_path: Path) -> None:
    assert await whose(tmp_path, token()) == ADA
    assert await whose(tmp_path, token(), pem(RSA)) == ADA
    assert await whose(tmp_path, token(sub="auth0|7", tenant="b")) == Identity("b", "auth0|7")
    assert await whose(tmp_path, token(), jwt_tenant_claim="") == Identity("default", "ada")


async def test_a_token_is_named_by_its_own_id_or_its_hash(tmp_path: Path) -> None:
    assert (await whose(tmp_path, token(jti="7f3a"))).credential == "jwt:7f3a"
    for unusable in ({}, {"jti": "two words"}, {"jti": "x" * 101}):
        shown = token(**unusable)
        named = hashlib.sha256(shown.encode()).hexdigest()[:12]
        assert (await whose(tmp_path, shown)).credential == f"jwt:{named}"


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
    found = await whose(tmp_path, token(**given))
    assert (found.roles, found.scopes) == (roles, scopes)
    named = await whose(tmp_path, token(groups=["ops"]), jwt_roles_claim="groups", jwt_scopes_claim="")
    assert named.roles == {"ops"}


@pytest.mark.parametrize(("key", "algorithm"), [(RSA, "PS256"), (EC, "ES256"), (ED, "EdDSA")])
async def test_every_kind_of_public_key_verifies(key: Any, algorithm: str, tmp_path: Path) -> None:
    keys = jwks(jwk(RSA, "other"), jwk(EC, "another"), jwk(key, "k1"))
    assert await whose(tmp_path, token(key, algorithm), keys, jwt_algorithms=algorithm) == ADA
    assert await whose(tmp_path, token(key, algorithm, kid=None), keys, jwt_algorithms=algorithm) == ADA


@pytest.mark.parametrize(
    "changed",
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
async def test_a_token_with_a_wrong_claim_is_refused(changed: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(Unauthenticated):
        await whose(tmp_path, token(**changed))


async def test_the_issuers_clock_may_be_a_little_wrong(tmp_path: Path) -> None:
    late = int(claims()["iat"]) - 10
    assert await whose(tmp_path, token(exp=late)) == ADA
    with pytest.raises(Unauthenticated, match="expired"):
        await whose(tmp_path, token(exp=late), jwt_leeway_s=1.0)


@pytest.mark.parametrize(
    "shown",
    [
        by_hand({"alg": "none", "typ": "JWT"}),
        by_hand({"alg": "HS256", "kid": "k1"}, pem(RSA)),  # the public key as the secret
        by_hand({"alg": "HS256", "kid": "k1"}, b""),
        token(EC, "ES256", kid="k1"),  # not the kind of the key
        token(algorithm="RS512"),  # not allowed
        token(kid="unknown"),
        token()[:-8] + "AAAAAAAA",
        "a.b.c",
        "..",
        "ey.é.x",
        by_hand({"alg": ["RS256"], "kid": "k1"}, b"x"),
        by_hand({"kid": {"a": 1}}, b"x"),
    ],
)
async def test_a_token_that_nobody_has_signed_is_refused(shown: str, tmp_path: Path) -> None:
    with pytest.raises(Unauthenticated):
        await whose(tmp_path, shown)


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
def test_keys_that_verify_nothing_are_refused(keys: bytes) -> None:
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
    """Publishes keys, and counts who asks for them."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.asked = 0
        self.is_away = False

    async def answer(self, _: web.Request) -> web.Response:
        self.asked += 1
        await asyncio.sleep(0.02)
        return web.Response(status=503) if self.is_away else web.Response(body=self.body)


@asynccontextmanager
async def publishing(issuer: Issuer) -> AsyncGenerator[str]:
    async with serving_web(issuer.answer) as port:
        yield f"http://127.0.0.1:{port}/jwks"


def tokens(keys: FetchedKeys) -> JwtVerifier:
    return JwtVerifier(keys, ISSUER, AUDIENCE, frozenset({"RS256", "ES256"}), "tenant", "roles", "scope", 0)


async def test_keys_are_fetched_once_and_again_for_a_new_key_id_but_not_too_often() -> None:
    issuer = Issuer(jwks(jwk(RSA)))
    async with publishing(issuer) as url:
        fetched = FetchedKeys(url, interval_s=0.2)
        taken = tokens(fetched)
        assert await asyncio.gather(*(taken.verify_token(token()) for _ in range(20))) == [ADA] * 20
        assert issuer.asked == 1
        issuer.body = jwks(jwk(RSA), jwk(EC, "k2"))
        for _ in range(5):
            with pytest.raises(Unauthenticated):
                await taken.verify_token(token(EC, "ES256", kid="k2"))
        assert issuer.asked == 1
        await asyncio.sleep(0.2)
        assert await taken.verify_token(token(EC, "ES256", kid="k2")) == ADA
        assert issuer.asked == 2


async def test_an_issuer_that_is_away_takes_no_known_key_with_it() -> None:
    issuer = Issuer(jwks(jwk(RSA)))
    issuer.is_away = True
    async with publishing(issuer) as url:
        taken = tokens(FetchedKeys(url, interval_s=0.0, age_s_max=0.0))
        with pytest.raises(Overloaded, match="try again"):
            await taken.verify_token(token())
        issuer.is_away = False
        assert await taken.verify_token(token()) == ADA
        issuer.is_away = True
        assert await taken.verify_token(token()) == ADA


async def test_an_issuer_that_sends_too_much_is_away() -> None:
    issuer = Issuer(jwks(jwk(RSA)) + b" " * (1024 * 1024))
    async with publishing(issuer) as url:
        with pytest.raises(Overloaded):
            await tokens(FetchedKeys(url)).verify_token(token())
