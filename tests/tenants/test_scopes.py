"""Every RPC and route with keys that are revoked, disabled or expired, and with keys that lack the scope."""

import asyncio
import io
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from services.facade.proto_routes import load_routes
from services.runtime.auth.callers import find_scope
from services.runtime.auth.identity import ALL_SCOPES, Identity
from services.runtime.clock import now_ms
from tests.support.contract import RPCS
from tests.support.facade.fronts import FRONTS
from tests.support.tenants.requests import Ids, make_request
from tests.support.tenants.suite import (
    ADA,
    KEYS,
    Outcome,
    TenantSuite,
    fresh,
    is_public,
    opening_front,
    path,
    serving_tenants,
    until_refused,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

PUBLIC = [name for name, rpc in RPCS.items() if is_public(rpc)]
FOR_EVERY_SCOPE = {
    "AgentService": "ListAgents GetAgent ListAgentVersions GetIdentity",
    "DataService": "ExportData",  # of one's own
    "GateService": "ListGates WatchGates GetGate ListGrants RevokeGrant ExportGates",
    "KeyService": "ConfirmKey",  # of one's own key
    "ScheduleService": "ReceiveWebhook",  # whose signature is its credential
    "SpendService": "GetUsage",
    "ToolService": "ListTools GetTool ListSkills",
}
"""Public RPCs that accept every credential, and check the scopes of some requests themselves."""

WAYS_TO_END = ("revoked", "disabled", "expired")


@dataclass(frozen=True)
class Stage:
    suite: TenantSuite
    ended: dict[str, str]
    """A key for each way to end."""
    lacking: dict[str, str]
    """For each scope, a key that has all the others."""

    async def call(self, name: str, who: Identity) -> Outcome:
        return await self.suite.call(RPCS[name], who, make_request(name, Ids(fresh(), fresh())), as_client=True)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Stage]:
    async with serving_tenants(tmp_path_factory.mktemp("scopes")) as suite:
        async with suite.connect(KEYS[ADA]) as admin:
            keys = {way: await suite.make_key(way, "cat") for way in WAYS_TO_END[:2]}
            lacking = {
                scope: await suite.make_key(f"no {scope}", "dan", scopes=[*ALL_SCOPES - {scope}])
                for scope in ALL_SCOPES
            }
            keys["expired"] = await suite.make_key("expired", "cat", expires_at=now_ms() + 1000)
            await admin.revoke_key(keys["revoked"].key.key_id)
            await admin.update_key(keys["disabled"].key.key_id, disabled=True)
        for key in keys.values():
            async with suite.connect(key.secret) as client:
                for call in (client.agents, client.facts, lambda ask=client: ask.upload("notes.txt", b"hello")):
                    await until_refused(call)
            await until_refused_over_http(suite, key.secret)
        yield Stage(
            suite, {way: key.secret for way, key in keys.items()}, {scope: key.secret for scope, key in lacking.items()}
        )


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=FRONTS)
async def front(request: pytest.FixtureRequest, stage: Stage) -> AsyncGenerator[aiohttp.ClientSession]:
    async with opening_front(request.param, stage.suite) as http:
        yield http


async def until_refused_over_http(suite: TenantSuite, secret: str) -> None:
    while True:
        async with suite.http.get("/api/agents", headers={"X-API-Key": secret}) as response:
            if response.status == 401:
                return
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("name", PUBLIC)
async def test_a_revoked_disabled_or_expired_key_is_refused_by_every_rpc(
    name: str, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    cat = Identity("acme", "cat")
    for way, secret in stage.ended.items():
        monkeypatch.setitem(KEYS, cat, secret)
        outcome = await stage.call(name, cat)
        assert (outcome.code, outcome.reason) == ("UNAUTHENTICATED", "CREDENTIAL_ENDED"), way
        assert way in outcome.message


async def test_each_public_rpc_needs_a_scope_or_is_listed_as_an_exception() -> None:
    open_to_all = {f"{service}.{name}" for service, names in FOR_EVERY_SCOPE.items() for name in names.split()}
    assert {name for name in PUBLIC if not find_scope(path(RPCS[name]))} == open_to_all & set(PUBLIC)
    assert {find_scope(path(RPCS[name])) for name in PUBLIC} - {""} <= ALL_SCOPES


@pytest.mark.parametrize("name", [name for name in PUBLIC if find_scope(path(RPCS[name]))])
async def test_a_credential_without_the_scope_is_refused(
    name: str, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    dan = Identity("acme", "dan")
    monkeypatch.setitem(KEYS, dan, stage.lacking[find_scope(path(RPCS[name]))])
    outcome = await stage.call(name, dan)
    assert (outcome.code, outcome.reason) == ("PERMISSION_DENIED", "PERMISSION_DENIED"), outcome
    assert outcome.message == f"this credential has no scope {find_scope(path(RPCS[name]))!r}"


async def test_an_ended_key_is_refused_by_every_route(stage: Stage, front: aiohttp.ClientSession) -> None:
    for route in load_routes():
        if route.is_hook:  # Posts to a hook are signed.
            continue
        where = route.path.replace("{schedule_id}", fresh())
        for secret in stage.ended.values():
            async with front.request(route.verb, where, headers={"X-API-Key": secret}) as response:
                assert response.status == 401, where
                if route.verb != "HEAD":
                    assert (await response.json())["error"]["code"] == "CREDENTIAL_ENDED"


async def test_every_route_refuses_a_credential_without_its_scope(stage: Stage, front: aiohttp.ClientSession) -> None:
    for route in load_routes():
        scope = find_scope(route.grpc_path)
        if not scope or route.is_hook:
            continue
        body: dict[str, Any] = {} if route.verb in ("GET", "HEAD") else {"json": {}}
        if route.is_upload:
            body = {"data": {"file": io.BytesIO(b"hello")}}
        headers = {"X-API-Key": stage.lacking[scope]}
        async with front.request(route.verb, route.path, headers=headers, **body) as response:
            assert response.status == 403, route.path
            if route.verb != "HEAD":
                text = await response.text()
                assert "PERMISSION_DENIED" in text, route.path
                assert f"no scope '{scope}'" in text, text


ADAPTERS = (
    *(("GET", "/agui"), ("GET", "/agui/plain"), ("POST", "/agui/plain")),
    *(("GET", "/a2a"), ("GET", "/a2a/plain/.well-known/agent-card.json"), ("POST", "/a2a/plain")),
    *(("POST", "/a2a/plain/message:send"), ("POST", "/mcp")),
    *(("GET", "/v1/models"), ("POST", "/v1/chat/completions"), ("POST", "/v1/responses"), ("POST", "/v1/embeddings")),
    *(("POST", "/v1/files"), ("GET", "/v1/files/some"), ("GET", "/v1/responses/some")),
)


@pytest.mark.parametrize(("verb", "where"), ADAPTERS)
async def test_an_ended_key_is_refused_by_every_face(
    verb: str, where: str, stage: Stage, front: aiohttp.ClientSession
) -> None:
    for way, secret in stage.ended.items():
        async with front.request(verb, where, headers={"X-API-Key": secret}, json={}) as response:
            assert response.status == 401, way
            error = (await response.json())["error"]
            assert error["code"].upper() == "CREDENTIAL_ENDED", way


ASKING = {
    "/agui/plain": {"threadId": "t", "runId": "r", "messages": [{"id": "u", "role": "user", "content": "hello"}]},
    "/v1/chat/completions": {"model": "plain", "messages": [{"role": "user", "content": "hello"}]},
    "/v1/responses": {"model": "plain", "input": "hello"},
    "/a2a/plain/message:send": {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}},
}


@pytest.mark.parametrize("where", ASKING)
async def test_facades_refuse_queries_without_the_scope_ask(
    where: str, stage: Stage, front: aiohttp.ClientSession
) -> None:
    headers = {"X-API-Key": stage.lacking["ask"]}
    async with front.post(where, json=ASKING[where], headers=headers) as response:
        text = await response.text()
        assert (response.status, "no scope 'ask'" in text) == (403, True), text
