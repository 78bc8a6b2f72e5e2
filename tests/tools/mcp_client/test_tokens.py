"""Answers of authorization servers, as real ones write them and as a hostile one might."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from aiohttp import web

from services.runtime.auth.identity import DEFAULT, Identity
from services.runtime.net.allow_list import parse_allow_list
from services.tools.errors import ToolFailed
from services.tools.mcp_client.oauth.authorizer import Authorizer
from services.tools.mcp_client.oauth.token_store import USER_PENDING_MAX, Client, Issuer, Pending, Token, TokenStore
from services.tools.mcp_client.oauth.tokens import LASTS_S_MAX, AuthorizationFailed, exchange_code, renew, send
from services.tools.mcp_client.sdk_errors import Challenge
from services.tools.mcp_client.settings import Http, OAuth
from tests.support.web_server import serving_web

HERE = parse_allow_list("127.0.0.1")

REDIRECT = "http://127.0.0.1:8080/console/authorized.html"


@asynccontextmanager
async def answering(body: bytes) -> AsyncGenerator[Issuer]:
    """Run an authorization server that answers every request with `body`."""

    async def answer(request: web.Request) -> web.Response:
        del request
        return web.Response(body=body, content_type="application/json")

    async with serving_web(answer) as port:
        origin = f"http://127.0.0.1:{port}"
        yield Issuer(origin, f"{origin}/token", "https://mcp.example", Client("headrace"))


async def exchange(issuer: Issuer) -> Token:
    made_at = time.time()
    pending = Pending("s", "acme", "ann", issuer, "verifier", REDIRECT, says_issuer=False, made_at=made_at)
    return await exchange_code(pending, "code", HERE)


def test_one_users_pending_authorizations_displace_nobody_elses(tmp_path: Path) -> None:
    store, issuer = TokenStore(tmp_path, "key"), Issuer("https://a.example", "", "", Client("headrace"))

    def begin(user: str, state: str) -> None:
        pending = Pending("s", "acme", user, issuer, "verifier", REDIRECT, says_issuer=False, made_at=time.time())
        store.put_pending(state, pending)

    begin("ann", "hers")
    for number in range(USER_PENDING_MAX + 5):
        begin("ben", str(number))
    assert len([*tmp_path.glob("*/*.pending")]) == 1 + USER_PENDING_MAX
    assert store.take_pending("hers", Identity("acme", "ben")) is None
    assert store.take_pending("hers", Identity("acme", "ann")) is not None


@pytest.mark.parametrize(
    ("answer", "lasts_s"),
    [
        (b'{"access_token": "a", "token_type": "bearer", "refresh_token": null, "expires_in": null}', 0),
        (b'{"access_token": "a", "token_type": null, "expires_in": "3600"}', 3600),
        (b'{"access_token": "a", "expires_in": 3600.5}', 3600),
        (b'{"access_token": "a", "expires_in": 1e308}', LASTS_S_MAX),
        (b'{"access_token": "a", "expires_in": -5}', 0),
    ],
)
async def test_token_responses_of_real_servers_are_accepted(answer: bytes, lasts_s: float) -> None:
    async with answering(answer) as issuer:
        token = await exchange(issuer)
        renewed = await renew(token, HERE)
    for received in (token, renewed):
        assert (received.access, received.refresh) == ("a", "")
        assert (received.expires_at - time.time() if received.expires_at else 0) == pytest.approx(lasts_s, abs=100)


@pytest.mark.parametrize(
    "answer", [b"", b"[]", b"{}", b'{"access_token": 1}', b'{"access_token": "a", "x": ' + b"[" * 100_000]
)
async def test_a_response_without_a_token_is_reported(answer: bytes) -> None:
    async with answering(answer) as issuer:
        with pytest.raises(AuthorizationFailed, match="has no token"):
            await exchange(issuer)


async def test_an_endless_response_is_abandoned() -> None:
    disconnected = asyncio.Event()

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while not writer.is_closing():
            writer.write(b" ")
            await asyncio.sleep(0.05)
        disconnected.set()

    async with asyncio.timeout(30), await asyncio.start_server(drip, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        with pytest.raises(AuthorizationFailed, match="does not answer"):
            await send(httpx2.Request("GET", url), HERE, timeout_s=0.5)
        await disconnected.wait()


@dataclass(slots=True)
class Office:
    """An MCP server with an authorization server, whose metadata a test sets."""

    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    resource: dict[str, Any] = field(default_factory=dict[str, Any])
    registered: dict[str, Any] = field(default_factory=dict[str, Any])
    clients: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """The registrations, as they were requested."""
    exchanges: list[tuple[str, dict[str, Any]]] = field(default_factory=list[tuple[str, dict[str, Any]]])
    """The Authorization header and the form of each request for tokens."""

    async def answer(self, request: web.Request) -> web.Response:
        origin = f"http://{request.host}"
        if request.path.startswith("/.well-known/oauth-protected-resource"):
            return web.json_response({"resource": f"{origin}/mcp", "authorization_servers": [origin]} | self.resource)
        if request.path.startswith("/.well-known/oauth-authorization-server"):
            places = {f"{name}_endpoint": f"{origin}/{name}" for name in ("authorization", "token", "registration")}
            stated = {"issuer": origin, "code_challenge_methods_supported": ["S256"]}
            return web.json_response(places | stated | self.metadata)
        if request.path == "/registration":
            self.clients.append(await request.json())
            return web.json_response({"client_id": f"c{len(self.clients)}"} | self.registered, status=201)
        if request.path == "/token":
            form = {name: str(value) for name, value in (await request.post()).items()}
            self.exchanges.append((request.headers.get("authorization", ""), form))
            return web.json_response({"access_token": "a"})
        return web.Response(status=404)


@dataclass(slots=True)
class User:
    """The user who authorizes Headrace at an `Office`'s server."""

    port: int
    store: TokenStore

    async def ask(
        self, challenge: Challenge | None = None, refused: str = "", redirect: str = REDIRECT, **oauth: str
    ) -> dict[str, str]:
        """The parameters of the consent page."""
        settings = Http(
            url=f"http://127.0.0.1:{self.port}/mcp", oauth=OAuth.model_validate({"redirectUrl": redirect, **oauth})
        )
        outcome = await Authorizer("s", settings, self.store).ask(DEFAULT, refused, challenge or Challenge())
        return {name: values[0] for name, values in parse_qs(urlsplit(outcome.asks[0].url).query).items()}

    async def come_back(self, query: dict[str, str]) -> Token:
        pending = self.store.take_pending(query["state"], DEFAULT)
        assert pending is not None
        return await exchange_code(pending, "code", HERE)


@asynccontextmanager
async def serving(folder: Path, office: Office) -> AsyncGenerator[User]:
    async with serving_web(office.answer) as port:
        yield User(port, TokenStore(folder, "a key that nobody can guess"))


BASIC, POST, NONE = "client_secret_basic", "client_secret_post", "none"


@pytest.mark.parametrize(
    ("supported", "registered", "requested", "used"),
    [
        (None, {}, NONE, NONE),
        ([BASIC, NONE], {}, NONE, NONE),
        ([POST], {"client_secret": "x"}, POST, POST),
        ([BASIC, POST], {"client_secret": "x"}, BASIC, BASIC),
        (["private_key_jwt", POST], {"client_secret": "x", "token_endpoint_auth_method": POST}, POST, POST),
        ([BASIC, NONE], {"client_secret": "x", "token_endpoint_auth_method": NONE}, NONE, NONE),
        (None, {"client_secret": "x", "token_endpoint_auth_method": None}, NONE, BASIC),
        ([POST, NONE], {"client_secret": "x"}, NONE, POST),
    ],
)
async def test_a_client_authenticates_with_a_method_its_server_supports(
    tmp_path: Path, supported: list[str] | None, registered: dict[str, Any], requested: str, used: str
) -> None:
    office = Office({"token_endpoint_auth_methods_supported": supported}, registered=registered)
    async with serving(tmp_path, office) as user:
        await user.come_back(await user.ask())
    assert office.clients[0]["token_endpoint_auth_method"] == requested
    [(header, form)] = office.exchanges
    assert (header.startswith("Basic "), "client_secret" in form) == (used == BASIC, used == POST)


@pytest.mark.parametrize(("redirect", "kind"), [(REDIRECT, "native"), ("https://headrace.example/back", "web")])
async def test_a_client_is_registered_with_the_application_type_of_its_redirect(
    tmp_path: Path, redirect: str, kind: str
) -> None:
    office = Office()
    async with serving(tmp_path, office) as user:
        await user.ask(redirect=redirect)
    assert office.clients[0]["application_type"] == kind


ALL = ["read", "write", "openid", "offline_access"]


@pytest.mark.parametrize(
    ("challenge", "of_resource", "of_authority", "scope"),
    [
        ("", None, None, ""),
        ("", None, ALL[:3], ""),
        ("", ["read"], ALL[:3], "read"),
        ("", ["read"], ALL, "read offline_access"),
        ("write", ["read"], ALL[:3], "write"),
        ("", ["offline_access", "read"], ALL, "offline_access read"),
    ],
)
async def test_the_requested_scopes_are_those_the_server_names(
    tmp_path: Path,
    challenge: str,
    of_resource: list[str] | None,
    of_authority: list[str] | None,
    scope: str,
) -> None:
    """They include the scope for a refresh token, and the client is registered with them."""
    office = Office({"scopes_supported": of_authority}, {"scopes_supported": of_resource})
    async with serving(tmp_path, office) as user:
        query = await user.ask(Challenge(scope=challenge))
        token = await user.come_back(query)
    assert query.get("scope", "") == token.scope == office.clients[0].get("scope", "") == scope
    assert query.get("prompt") == ("consent" if "offline_access" in scope else None)


async def test_a_token_lacking_a_scope_is_kept_and_its_scopes_are_requested_again(tmp_path: Path) -> None:
    """Otherwise two tools with different scopes would make the user consent at each call."""
    async with serving(tmp_path, Office()) as user:
        token = await user.come_back(await user.ask(Challenge(scope="read")))
        user.store.put_token(token)
        query = await user.ask(Challenge(scope="write", wants_more=True), token.header)
        assert query["scope"] == "read write"
        assert user.store.find_token("s", DEFAULT) == token
        assert (await user.ask(Challenge(scope="write"), token.header))["scope"] == "write"
        assert user.store.find_token("s", DEFAULT) is None


@pytest.mark.parametrize("hint", ["http://tracker.example/meta", "/meta", "http://10.0.0.1/meta", "no address"])
async def test_an_unusable_metadata_hint_is_ignored(tmp_path: Path, hint: str) -> None:
    """A server sends such a hint when it does not know that its proxy terminates TLS."""
    async with serving(tmp_path, Office()) as user:
        assert (await user.ask(Challenge(resource_metadata=hint)))["client_id"] == "c1"


async def test_metadata_that_are_empty_or_wrong_where_nobody_reads_them_are_used(tmp_path: Path) -> None:
    texts = {"service_documentation": "see the wiki", "op_policy_uri": "", "introspection_endpoint": "/introspect"}
    office = Office(
        {**texts, "ui_locales_supported": "en", "revocation_endpoint": "", "grant_types_supported": None},
        {"resource_documentation": "", "jwks_uri": "none", "bearer_methods_supported": "header"},
    )
    async with serving(tmp_path, office) as user:
        assert (await user.come_back(await user.ask())).access == "a"


async def test_a_registration_is_reused_while_its_scopes_and_secret_suffice(tmp_path: Path) -> None:
    office = Office(registered={"client_secret": "x", "scope": "read"})
    async with serving(tmp_path, office) as user:

        async def authorize(scope: str = "read") -> str:
            query = await user.ask(scope=scope)
            pending = user.store.take_pending(query["state"], DEFAULT)
            assert pending is not None
            user.store.put_client("s", pending.issuer.issuer, REDIRECT, pending.issuer.client)
            return query["client_id"]

        assert [await authorize(), await authorize()] == ["c1", "c1"]
        assert await authorize("read write") == "c2", "the other is not registered for that"
        office.registered |= {"client_secret_expires_at": int(time.time()) + 60, "scope": ""}
        assert await authorize("write") == "c3"
        assert await authorize("write") == "c4", "its secret would end before the user is back"


async def test_a_refused_registration_names_the_setting_that_helps(tmp_path: Path) -> None:
    office = Office({"registration_endpoint": "http://127.0.0.1:9/nowhere"})
    async with serving(tmp_path, office) as user:
        office.metadata["registration_endpoint"] = f"http://127.0.0.1:{user.port}/closed"
        with pytest.raises(ToolFailed, match=r"\(404\): oauth.clientId is needed"):
            await user.ask()
