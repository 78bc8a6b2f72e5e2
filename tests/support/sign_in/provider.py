"""An OpenID provider over a real socket, honest unless a test sets a field."""

import base64
import hashlib
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import jwt
from aiohttp import BasicAuth, web

from tests.support.issuing import EC, RSA, jwk

CLIENT, SECRET = "headrace-console", "a secret: with / and +"


@dataclass
class ScriptedProvider:
    url: str = ""
    claims: dict[str, Any] = field(default_factory=dict[str, Any])
    """Claims of ID tokens added to, or replacing, the usual ones; None omits a claim."""

    description: dict[str, Any] = field(default_factory=dict[str, Any])
    """Fields of the discovery document added to, or replacing, the usual ones."""

    key: Any = RSA
    """By which it signs; RSA is the one that it publishes."""

    lifetime_s: int = 60
    """Of an ID token."""

    gives_refresh_tokens: bool = True
    is_away: bool = False
    """Whether all it answers is 503."""

    grants: list[str] = field(default_factory=list[str])
    """The grant types that were asked for."""

    revoked: list[str] = field(default_factory=list[str])
    refresh_tokens: set[str] = field(default_factory=set[str])
    """Those that are good; each is so once."""

    _codes: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    _count: int = 0

    async def describe(self, _: web.Request) -> web.Response:
        usual = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "revocation_endpoint": f"{self.url}/revoke",
            "end_session_endpoint": f"{self.url}/end",
            "jwks_uri": f"{self.url}/keys",
        }
        return web.json_response({key: value for key, value in (usual | self.description).items() if value is not None})

    async def publish_keys(self, _: web.Request) -> web.Response:
        return web.json_response({"keys": [jwk(RSA)]})

    async def authorize(self, request: web.Request) -> web.Response:
        """Send the browser back at once, as for a person who has signed in before."""
        query = dict(request.query)
        assert query["response_type"] == "code"
        assert query["code_challenge_method"] == "S256"
        assert query["client_id"] == CLIENT
        assert "openid" in query["scope"].split()
        code = self._name("code")
        self._codes[code] = query
        back = urlencode({"code": code, "state": query["state"]})
        return web.Response(status=302, headers={"Location": f"{query['redirect_uri']}?{back}"})

    async def give_tokens(self, request: web.Request) -> web.Response:
        form = {key: str(value) for key, value in (await request.post()).items()}
        self.grants.append(form["grant_type"])
        if BasicAuth.decode(request.headers["Authorization"]).password != "a+secret%3A+with+%2F+and+%2B":
            return web.json_response({"error": "invalid_client"}, status=401)
        nonce = None
        if form["grant_type"] == "authorization_code":
            authorization = self._codes.pop(form["code"], None)
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            if authorization is None or (authorization["redirect_uri"], authorization["code_challenge"]) != (
                form["redirect_uri"],
                challenge,
            ):
                return web.json_response({"error": "invalid_grant"}, status=400)
            nonce = authorization["nonce"]
        elif form["refresh_token"] not in self.refresh_tokens:
            return web.json_response({"error": "invalid_grant"}, status=400)
        self.refresh_tokens.discard(form.get("refresh_token", ""))
        answer: dict[str, Any] = {"access_token": "opaque", "token_type": "Bearer", "id_token": self._sign(nonce)}
        if self.gives_refresh_tokens:
            self.refresh_tokens.add(answer.setdefault("refresh_token", self._name("refresh")))
        return web.json_response(answer)

    async def revoke(self, request: web.Request) -> web.Response:
        form = await request.post()
        self.revoked.append(str(form["token"]))
        self.refresh_tokens.discard(str(form["token"]))
        return web.Response()

    def _sign(self, nonce: str | None) -> str:
        now = int(time.time())
        usual = {
            "iss": self.url,
            "aud": CLIENT,
            "sub": "ada",
            "tenant": "acme",
            "iat": now,
            "exp": now + self.lifetime_s,
            "nonce": nonce,
        }
        claims = {key: value for key, value in (usual | self.claims).items() if value is not None}
        return jwt.encode(claims, self.key, "ES256" if self.key is EC else "RS256", headers={"kid": "k1"})

    def _name(self, kind: str) -> str:
        self._count += 1
        return f"{kind}-{self._count}"

    @web.middleware
    async def be_away(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if self.is_away:
            return web.Response(status=503, text="<h1>away</h1>")
        return await handler(request)


@asynccontextmanager
async def serving_provider() -> AsyncGenerator[ScriptedProvider]:
    provider = ScriptedProvider()
    application = web.Application(middlewares=[provider.be_away])
    application.router.add_get("/.well-known/openid-configuration", provider.describe)
    application.router.add_get("/keys", provider.publish_keys)
    application.router.add_get("/authorize", provider.authorize)
    application.router.add_post("/token", provider.give_tokens)
    application.router.add_post("/revoke", provider.revoke)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        provider.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield provider
    finally:
        await runner.cleanup()
