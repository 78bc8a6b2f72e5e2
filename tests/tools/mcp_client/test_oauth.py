"""Servers that require each user's authorization, with a real authorization server: grants, renewals, refusals."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import msgspec
import pytest
import structlog
from aiohttp import web

from headrace.errors import InvalidRequest, NotFound, Overloaded
from headrace.streams import reading, rpc_errors
from headrace.v1 import common_pb2, tools_pb2
from services.runtime.auth.audit_records import AuditRecords
from services.runtime.auth.callers import TOOLS
from services.runtime.auth.identity import DEFAULT, Identity, acting_as
from services.runtime.rpc.channels import open_channel
from services.tools.mcp_client.authorizations import Authorizations
from services.tools.mcp_client.oauth.token_store import TokenStore
from services.tools.mcp_client.oauth.tokens import LASTS_S_MAX
from services.tools.mcp_client.servers import McpServers
from tests.support.tools import calls
from tests.support.tools.audit_log import AuditLog, serving_audit
from tests.support.tools.mcp_http import Http, http_server
from tests.support.tools.mcp_suite import Suite
from tests.support.tools.mcp_suite import serving as serving_servers
from tests.support.web_server import serving_web
from tests.tools.mcp_client.oauth_app import Authority, make_protected_app

REDIRECT = "http://127.0.0.1:8080/console/authorized.html"
KEY = "a key that nobody can guess, of 32 or more"
BEN = Identity(DEFAULT.tenant, "ben")

VERSIONS = pytest.mark.parametrize("is_legacy", [False, True], ids=["2026-07-28", "2025-11-25"])


@asynccontextmanager
async def serving(
    folder: Path, http: Http, key: str = KEY, audit: AuditLog | None = None, **oauth: Any
) -> AsyncGenerator[Suite]:
    servers = {"s": {"url": http.url, "oauth": {"redirectUrl": REDIRECT, **oauth}}}
    async with AsyncExitStack() as stack:
        if audit is None:
            audit = await stack.enter_async_context(serving_audit())
        settings = {"secrets_key": key, "memory_address": audit.address}
        yield await stack.enter_async_context(serving_servers(folder, servers, {}, **settings))


def protected(authority: Authority, *, is_legacy: bool = False) -> Any:
    return http_server(make_app=partial(make_protected_app, authority), is_legacy=is_legacy)


async def execute(suite: Suite, tool: str, key: str, *answers: tools_pb2.InputAnswer) -> tools_pb2.ToolOutcome:
    request = calls.request(tool, {}, effect_key=key, answers=answers)
    async with reading(suite.stub.Execute(request)) as deltas:
        return [delta async for delta in deltas][-1].result


async def agree(need: common_pb2.InputNeed) -> tools_pb2.CompleteAuthorizationRequest:
    """Act as the user's browser: visit the URL and return the parameters of its redirect."""
    async with httpx2.AsyncClient() as browser:
        sent_back = await browser.get(need.url)
    address = sent_back.headers["location"]
    assert address.startswith(REDIRECT + "?")
    query = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
    return tools_pb2.CompleteAuthorizationRequest(state=query["state"], code=query["code"], issuer=query.get("iss"))


async def come_back(suite: Suite, given: tools_pb2.CompleteAuthorizationRequest) -> str:
    with rpc_errors():
        return (await suite.stub.CompleteAuthorization(given)).server


def accept(need: common_pb2.InputNeed) -> tools_pb2.InputAnswer:
    return tools_pb2.InputAnswer(name=need.name, action="accept")


async def connect(suite: Suite) -> common_pb2.InputNeed:
    """Authorize as the user, and wait until the server's tools are listed."""
    await suite.until("s__connect")
    [need] = (await execute(suite, "s__connect", "c1")).asks
    assert await come_back(suite, await agree(need)) == "s"
    await suite.until("s__whoami")
    return need


def read_all(folder: Path) -> bytes:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert not any(path.stat().st_mode & 0o077 for path in files if path.suffix == ".token")
    return b"".join(path.read_bytes() for path in files)


@VERSIONS
async def test_a_call_continues_after_the_user_authorizes_the_server(tmp_path: Path, *, is_legacy: bool) -> None:
    authority = Authority()
    with structlog.testing.capture_logs() as logged:
        async with protected(authority, is_legacy=is_legacy) as http, serving(tmp_path, http) as suite:
            need = await connect(suite)
            query = {name: values[0] for name, values in parse_qs(urlsplit(need.url).query).items()}
            assert (need.authorizes, need.server, query["code_challenge_method"]) == (True, "s", "S256")
            assert (query["redirect_uri"], query["resource"], query["scope"]) == (REDIRECT, http.url, "read")
            assert (await execute(suite, "s__connect", "c1", accept(need))).ok
            outcome = await execute(suite, "s__whoami", "k1")
            assert (outcome.ok, outcome.result) == (True, "ann")
    [token] = authority.access
    [client] = authority.clients.values()
    assert (client.client_name, client.token_endpoint_auth_method) == ("Headrace", "client_secret_basic")
    log_text = json.dumps(logged, default=repr)
    stored_bytes = read_all(tmp_path)
    for secret in (token, *authority.refresh):
        assert secret not in log_text
        assert secret.encode() not in stored_bytes
    assert b"whoami" in stored_bytes, "the search finds what is there"


async def test_a_token_is_renewed_once_and_survives_a_restart(tmp_path: Path) -> None:
    authority = Authority()
    async with protected(authority) as http:
        async with serving(tmp_path, http) as suite:
            authority.lasts_s = 1  # so it is due at once
            await connect(suite)
            authority.lasts_s = 3600
            outcomes = await asyncio.gather(*(execute(suite, "s__whoami", f"k{number}") for number in range(5)))
            assert [outcome.result for outcome in outcomes] == ["ann"] * 5
            renewals = authority.renewals
            assert renewals <= 2, "once the list of tools, once the calls together"
        async with serving(tmp_path, http) as suite:
            await suite.until("s__whoami")
            assert (await execute(suite, "s__whoami", "k9")).result == "ann"
        assert authority.renewals == renewals
        assert len(authority.clients) == 1, "it has registered once"


async def test_a_refused_token_requires_a_new_authorization(tmp_path: Path) -> None:
    authority = Authority()
    async with protected(authority) as http, serving(tmp_path, http) as suite:
        await connect(suite)
        authority.access.clear()
        authority.person = "ann again"
        [need] = (await execute(suite, "s__whoami", "k1")).asks
        await come_back(suite, await agree(need))
        assert (await execute(suite, "s__whoami", "k1", accept(need))).result == "ann again"


async def test_connecting_with_a_no_longer_valid_token_requires_a_new_authorization(tmp_path: Path) -> None:
    """This happens when the server has moved to another authorization server."""
    authority = Authority()
    async with protected(authority) as http, serving(tmp_path, http) as suite:
        await connect(suite)
        authority.access.clear()
        [need] = (await execute(suite, "s__connect", "c2")).asks
        await come_back(suite, await agree(need))
        assert (await execute(suite, "s__connect", "c2", accept(need))).ok


async def test_a_registration_unknown_to_its_authorization_server_is_renewed(tmp_path: Path) -> None:
    authority = Authority()
    async with protected(authority) as http, serving(tmp_path, http) as suite:
        await connect(suite)
        for forgotten in (authority.clients, authority.access, authority.refresh):  # as after its restart
            forgotten.clear()
        [need] = (await execute(suite, "s__whoami", "k1")).asks
        await come_back(suite, await agree(need))
        assert (await execute(suite, "s__whoami", "k1", accept(need))).result == "ann"
        assert await revoke(suite)
        authority.clients.clear()
        [need] = (await execute(suite, "s__connect", "c2")).asks
        async with httpx2.AsyncClient() as browser:
            assert (await browser.get(need.url)).status_code == 400  # nobody but this browser learns of it
        [need] = (await execute(suite, "s__connect", "c3")).asks
        await come_back(suite, await agree(need))


async def test_a_declined_authorization_yields_no_token(tmp_path: Path) -> None:
    async with protected(Authority()) as http, serving(tmp_path, http) as suite:
        await suite.until("s__connect")
        [need] = (await execute(suite, "s__connect", "c1")).asks
        declined = tools_pb2.InputAnswer(name=need.name, action="decline")
        refused = await execute(suite, "s__connect", "c1", declined)
        assert (refused.ok, "does not authorize" in refused.result) == (False, True)
        back = await agree(need)
        with pytest.raises(InvalidRequest, match="refused"):
            await come_back(suite, tools_pb2.CompleteAuthorizationRequest(state=back.state, error="access_denied"))
        with pytest.raises(NotFound):
            await come_back(suite, back)


async def test_a_state_belongs_to_one_user_and_is_valid_once(tmp_path: Path) -> None:
    async with (
        protected(Authority()) as http,
        serving_audit() as log,
        serving(tmp_path, http, audit=log) as suite,
        open_channel(log.address) as memory,
    ):
        await suite.until("s__connect")
        [need] = (await execute(suite, "s__connect", "c1")).asks
        back = await agree(need)
        store = TokenStore(tmp_path / "mcp_tokens", KEY)
        async with asyncio.TaskGroup() as group:
            servers = McpServers(tmp_path / "mcp.json", {}, lambda server, tools: None, group)
            with acting_as(BEN), pytest.raises(NotFound):
                await Authorizations(store, servers, AuditRecords(memory, TOOLS)).complete(back)
        other = tools_pb2.CompleteAuthorizationRequest(state=back.state + "x", code=back.code)
        with pytest.raises(NotFound):
            await come_back(suite, other)
        await come_back(suite, back)
        with pytest.raises(NotFound):
            await come_back(suite, back)
        assert store.find_token("s", DEFAULT) is not None
        assert store.find_token("s", BEN) is None
        assert store.find_token("other", DEFAULT) is None
        assert TokenStore(tmp_path / "mcp_tokens", KEY + "!").find_token("s", DEFAULT) is None


async def test_a_code_of_another_authorization_server_is_refused(tmp_path: Path) -> None:
    authority = Authority()
    async with protected(authority) as http, serving(tmp_path, http) as suite:
        await suite.until("s__connect")
        [need] = (await execute(suite, "s__connect", "c1")).asks
        back = await agree(need)
        back.issuer = "https://evil.example"
        with pytest.raises(InvalidRequest, match="issuer"):
            await come_back(suite, back)
        assert authority.codes, "its code was sent to nobody"


async def test_an_unauthorized_user_never_uses_anothers_session(tmp_path: Path) -> None:
    authority = Authority()
    async with protected(authority) as http, serving(tmp_path, http) as suite:
        await connect(suite)
        store = TokenStore(tmp_path / "mcp_tokens", KEY)
        token = store.find_token("s", DEFAULT)
        assert token is not None
        store.delete_token(token)
        outcome = await execute(suite, "s__whoami", "k1")  # while the tools are listed over the session of that token
        assert (len(outcome.asks), "ann" in outcome.result) == (1, False)


@pytest.mark.parametrize("end", ["forgotten by another replica", "not renewed", "refused"])
async def test_an_ended_token_removes_its_tool_list(tmp_path: Path, end: str) -> None:
    authority = Authority()
    authority.lasts_s = 1 if end == "not renewed" else 3600  # which is due at once
    async with protected(authority) as http, serving(tmp_path, http) as suite:
        await connect(suite)
        if end == "forgotten by another replica":
            store = TokenStore(tmp_path / "mcp_tokens", KEY)
            assert store.take_token("s", DEFAULT) is not None
        authority.refresh.clear()
        authority.access.clear()
        if end == "refused":  # of which it hears when it next lists or calls
            assert len((await execute(suite, "s__whoami", "k1")).asks) == 1
        assert [*await suite.tools()] == ["s__connect"]


async def test_without_a_secrets_key_no_token_is_stored(tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as logged:
        async with protected(Authority()) as http, serving(tmp_path, http, key="") as suite:
            assert await suite.tools() == {}
            with pytest.raises(NotFound):
                await come_back(suite, tools_pb2.CompleteAuthorizationRequest(state="x", code="y"))
    [refused] = [entry for entry in logged if entry["event"] == "mcp server refused"]
    assert "HEADRACE_TOOLS_SECRETS_KEY" in refused["problem"]


async def test_metadata_naming_another_servers_resource_is_refused(tmp_path: Path) -> None:
    """Otherwise a server that names another server's resource would receive a token for that."""

    def make_app(http: Http) -> Any:
        twisted = Http(http.port)
        app = make_protected_app(Authority(), twisted)
        assert app.settings.auth is not None
        app.settings.auth.resource_server_url = type(app.settings.auth.issuer_url)("https://bank.example/mcp")
        return app

    async with http_server(make_app=make_app) as http, serving(tmp_path, http) as suite:
        await suite.until("s__connect")
        refused = await execute(suite, "s__connect", "c1")
        assert (refused.ok, len(refused.asks)) == (False, 0)
        assert "authorization" in refused.result


@pytest.mark.parametrize("place", ["resource_metadata", "authorization_servers", "registration_endpoint"])
@pytest.mark.parametrize(("host", "is_opened"), [("127.0.0.1", False), ("localhost", False), ("localhost", True)])
async def test_metadata_cannot_lead_to_an_internal_address(
    tmp_path: Path, host: str, place: str, *, is_opened: bool
) -> None:
    """URLs in a server's answers are fetched only from the public web, the server itself, and the hosts in `hosts`."""
    reached: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        reached.append(request.path)
        return web.Response(status=404)

    async with serving_web(answer) as port, lying(place, f"http://{host}:{port}") as http:
        oauth: dict[str, Any] = {"hosts": [f"{host}:{port}"]} if is_opened else {}
        async with serving(tmp_path, http, **oauth) as suite:
            await suite.until("s__connect")
            refused = await execute(suite, "s__connect", "c1")
    assert (refused.ok, len(refused.asks)) == (False, 0)
    assert bool(reached) == is_opened, refused.result


@asynccontextmanager
async def lying(place: str, elsewhere: str) -> AsyncGenerator[Http]:
    """Run an MCP server one of whose answers names a URL elsewhere."""

    async def answer(request: web.Request) -> web.Response:
        origin = f"http://{request.host}"
        resource = {"resource": f"{origin}/mcp", "authorization_servers": [origin]}
        authority = {name: f"{origin}/{name}" for name in ("authorization_endpoint", "token_endpoint")}
        authority |= {"issuer": origin, "registration_endpoint": f"{origin}/register"}
        authority |= {"response_types_supported": ["code"], "code_challenge_methods_supported": ["S256"]}
        metadata = f"{origin}/.well-known/oauth-protected-resource"
        if place == "resource_metadata":
            metadata = f"{elsewhere}/inside"
        elif place == "authorization_servers":
            resource[place] = [elsewhere]
        else:
            authority[place] = f"{elsewhere}/inside"
        if request.path.startswith("/.well-known/oauth-protected-resource"):
            return web.json_response(resource)
        if request.path.startswith("/.well-known/oauth-authorization-server"):
            return web.json_response(authority)
        return web.Response(status=401, headers={"WWW-Authenticate": f'Bearer resource_metadata="{metadata}"'})

    async with serving_web(answer) as port:
        yield Http(port)


async def list_own(suite: Suite) -> list[tools_pb2.Authorization]:
    with rpc_errors():
        return list((await suite.stub.ListAuthorizations(tools_pb2.ListAuthorizationsRequest())).authorizations)


async def revoke(suite: Suite, server: str = "s") -> bool:
    with rpc_errors():
        return (
            await suite.stub.RevokeAuthorization(tools_pb2.RevokeAuthorizationRequest(server=server))
        ).revoked_at_issuer


async def test_a_user_lists_and_revokes_an_authorization(tmp_path: Path) -> None:
    authority = Authority()
    async with protected(authority) as http, serving_audit() as log, serving(tmp_path, http, audit=log) as suite:
        assert await list_own(suite) == []
        before_ms = time.time() * 1000
        await connect(suite)
        assert (await execute(suite, "s__whoami", "k1")).result == "ann"
        [found] = await list_own(suite)
        assert (found.server, found.renewable, found.in_use) == ("s", True, True)
        assert found.issuer.startswith("http://127.0.0.1:")
        assert before_ms - 1000 <= found.authorized_at <= time.time() * 1000
        assert found.expires_at > found.authorized_at
        assert await revoke(suite)
        assert (authority.access, authority.refresh) == ({}, {}), "its issuer has forgotten them"
        assert await list_own(suite) == []
        assert [*await suite.tools()] == ["s__connect"]
        assert TokenStore(tmp_path / "mcp_tokens", KEY).find_token("s", DEFAULT) is None
        with pytest.raises(NotFound):
            await revoke(suite)
        assert len((await execute(suite, "s__whoami", "k2")).asks) == 1, "it is asked for anew"
    issuer = {"server": "s", "issuer": found.issuer}
    user = DEFAULT.user
    assert log.records == [("authorization.granted", user, issuer), ("authorization.revoked", user, issuer)]


async def test_revoking_reports_when_the_issuer_cannot_revoke(tmp_path: Path) -> None:
    authority = Authority()
    async with protected(authority) as http, serving(tmp_path, http) as suite:
        await connect(suite)
        store = TokenStore(tmp_path / "mcp_tokens", KEY)
        token = store.find_token("s", DEFAULT)
        assert token is not None
        elsewhere = msgspec.structs.replace(token.issuer, revocation_endpoint=f"{token.issuer.issuer}nowhere")
        for issuer in (elsewhere, msgspec.structs.replace(elsewhere, revocation_endpoint="")):
            store.put_token(msgspec.structs.replace(token, issuer=issuer))
            assert not await revoke(suite)
            assert store.find_token("s", DEFAULT) is None
        assert not store.put_renewed(token, token), "a renewal on its way does not bring it back"
        assert store.find_token("s", DEFAULT) is None


async def test_authorizing_and_revoking_fail_without_an_audit_log_entry(tmp_path: Path) -> None:
    authority = Authority()
    async with protected(authority) as http, serving_audit() as log, serving(tmp_path, http, audit=log) as suite:
        await suite.until("s__connect")
        [need] = (await execute(suite, "s__connect", "c1")).asks
        log.is_full = True
        with pytest.raises(Overloaded):
            await come_back(suite, await agree(need))
        assert await list_own(suite) == []
        log.is_full = False
        [need] = (await execute(suite, "s__connect", "c2")).asks
        await come_back(suite, await agree(need))
        log.is_full = True
        with pytest.raises(Overloaded):
            await revoke(suite)
        assert len(await list_own(suite)) == 1


async def test_a_user_cannot_list_or_revoke_anothers_authorization(tmp_path: Path) -> None:
    async with protected(Authority()) as http, serving(tmp_path, http) as suite:
        await connect(suite)
        store = TokenStore(tmp_path / "mcp_tokens", KEY)
        assert [token.user for token in store.list_tokens(DEFAULT)] == [DEFAULT.user]
        assert store.list_tokens(BEN) == store.list_tokens(Identity("acme", DEFAULT.user)) == []
        assert store.take_token("s", BEN) is None
        assert len(await list_own(suite)) == 1


async def test_a_token_with_an_enormous_lifetime_is_listed(tmp_path: Path) -> None:
    authority = Authority()
    authority.lasts_s = 10**18
    async with protected(authority) as http, serving(tmp_path, http) as suite:
        await connect(suite)
        [authorization] = await list_own(suite)
    assert authorization.expires_at / 1000 - time.time() == pytest.approx(LASTS_S_MAX, abs=200)
