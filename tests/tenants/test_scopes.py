"""Every RPC and route with a key that has ended, in each way, and with one that lacks the scope."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from google.protobuf.message_factory import GetMessageClass

from headrace.client import Client
from headrace.errors import CredentialEnded
from services.facade.proto_routes import load_routes
from services.runtime.auth.callers import SCOPES
from services.runtime.auth.identity import Identity
from services.runtime.clock import now_ms
from tests.tenants.house import ADA, KEYS, House, Outcome, fresh, house, is_public, path
from tests.tenants.requests import REQUESTS, RPCS, Ids

pytestmark = pytest.mark.asyncio(loop_scope="module")

PUBLIC = [name for name, rpc in RPCS.items() if is_public(rpc)]
NAMING_AGENTS = ("GetAgentVersion", "DiffAgentVersions", "ValidateAgent")
NEEDED = {"agent_key": "plain", "definition": "{}", "version": 1, "to_version": 1}
"""RPCs that look at scopes behind the fields that they need, and these."""

ENDED = ("revoked", "disabled", "expired")


@dataclass(frozen=True)
class Stage:
    it: House
    ended: dict[str, str]
    """A key's text for each way to end."""

    async def call(self, name: str, who: Identity, *, as_client: bool = True) -> Outcome:
        ids = Ids(fresh(), fresh())
        request = REQUESTS[name](ids) if name in REQUESTS else [GetMessageClass(RPCS[name].input_type)()]
        for field, value in NEEDED.items():
            for message in request:
                if field in message.DESCRIPTOR.fields_by_name and name.partition(".")[2] in NAMING_AGENTS:
                    setattr(message, field, value)
        return await self.it.call(RPCS[name], who, request, as_client=as_client)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Stage]:
    async with house(tmp_path_factory.mktemp("scopes")) as it:
        addresses: dict[str, Any] = {"memory_address": it.addresses["MemoryService"]}
        addresses["tools_address"] = it.addresses["ToolService"]
        async with Client(it.addresses["AgentService"], token=KEYS[ADA], **addresses) as admin:
            made = {way: await admin.create_key(way, "cat") for way in ENDED[:2]}
            made["expired"] = await admin.create_key("expired", "cat", expires_at=now_ms() + 1000)
            await admin.revoke_key(made["revoked"].key.key_id)
            await admin.update_key(made["disabled"].key.key_id, disabled=True)
        for one in made.values():
            async with Client(it.addresses["AgentService"], token=one.secret, **addresses) as client:
                for call in (client.agents, client.facts, lambda ask=client: ask.upload("notes.txt", b"hello")):
                    await until_refused(call)
            await until_refused_over_http(it, one.secret)
        yield Stage(it, {way: one.secret for way, one in made.items()})


async def until_refused(call: Any) -> None:
    while True:
        try:
            await call()
        except CredentialEnded:
            return
        await asyncio.sleep(0.02)


async def until_refused_over_http(it: House, secret: str) -> None:
    while True:
        async with it.http.get("/api/agents", headers={"X-API-Key": secret}) as response:
            if response.status == 401:
                return
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("name", PUBLIC)
async def test_a_key_that_has_ended_serves_for_nothing(
    name: str, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    cat = Identity("acme", "cat")
    for way, secret in stage.ended.items():
        monkeypatch.setitem(KEYS, cat, secret)
        outcome = await stage.call(name, cat)
        assert (outcome.code, outcome.reason) == ("UNAUTHENTICATED", "CREDENTIAL_ENDED"), way
        assert way in outcome.message


@pytest.mark.parametrize("name", [name for name in PUBLIC if name != "GateService.WatchGates"])  # which has no end
async def test_a_scope_is_wanted_where_the_reference_says_so(name: str, stage: Stage) -> None:
    outcome = await stage.call(name, Identity("acme", "eve"), as_client=False)
    lacking = f"this credential has no scope {SCOPES.get(path(RPCS[name]), '')!r}"
    assert (outcome.message == lacking) == (path(RPCS[name]) in SCOPES), outcome
    if path(RPCS[name]) in SCOPES:
        assert outcome.code == "PERMISSION_DENIED"


async def test_over_http_the_same(stage: Stage) -> None:
    for route in load_routes():
        if route.is_hook:  # who posts there has signed it
            continue
        where = route.path.replace("{schedule_id}", fresh())
        for secret in stage.ended.values():
            async with stage.it.http.request(route.verb, where, headers={"X-API-Key": secret}) as response:
                assert response.status == 401, where
                if route.verb != "HEAD":
                    assert (await response.json())["error"]["code"] == "CREDENTIAL_ENDED"
