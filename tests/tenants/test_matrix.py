"""Every RPC with the caller's own ids, another tenant's, unknown ids and invalid ones; and without a credential.

Another tenant's id gets exactly the same reply as an unknown one, and changes nothing.
"""

import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

import aiohttp
import pytest
import pytest_asyncio

from headrace.v1 import agent_pb2, memory_pb2
from services.facade.proto_routes import Route, load_routes
from services.runtime.auth.callers import WITHOUT_USER
from services.runtime.formats.json_form import encode
from tests.support.contract import RPCS
from tests.support.facade.fronts import FRONTS
from tests.support.facade.messages import parameters
from tests.support.tenants.requests import FIELDS, Ids, make_request
from tests.support.tenants.suite import (
    ADA,
    BOB,
    KEYS,
    SLOW,
    Outcome,
    TenantSuite,
    fresh,
    is_public,
    opening_front,
    path,
    serving_tenants,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIVE = [
    f"AgentService.{name}" for name in ("Attach", "Submit", "Cancel", "Steer", "GetRun", "ListRuns", "Query", "Compact")
]
"""RPCs that look for a live run before they ask memory."""

CREATES_CHAT = {
    "AgentService.Query",
    "ScheduleService.CreateSchedule",
    "KeyService.CreateKey",
    "WebhookService.CreateWebhook",
    "MemoryService.PutBlob",
    "ToolService.UploadFile",
    "ToolService.Execute",
    "ToolService.CheckEffect",
    "ToolService.LinkSkill",
}
"""RPCs that create an unknown chat. Another tenant's chat is not found."""

REPLIES_FOR_UNKNOWN = {
    "MemoryService.ReleaseLease": "OK",
    "MemoryService.RenewLease": "ABORTED",
    "MemoryService.RenewLeases": "OK",
    "MemoryService.ListUnfinishedRuns": "OK",
    "MemoryService.ListRuns": "OK",
    "MemoryService.ListGrants": "OK",
    "GateService.ListGrants": "OK",
    "OperatorService.ListRuns": "OK",
    "OperatorService.CancelRuns": "OK",
}
"""Replies for an unknown run: an unknown lease can be released, but not renewed (RenewLeases names it); lists omit the
run, and CancelRuns reports it as not found."""

CHECKS_ITSELF = {"MemoryService.ListUnfinishedRuns", "ScheduleService.ReceiveWebhook"}
"""RPCs without a user that need one, or a signature, depending on the request."""

BAD = "11111111-1111-4111-8111-11111111111Z"


@dataclass(frozen=True)
class Stage:
    """A suite in which Ada has an idle chat and one with a running run."""

    suite: TenantSuite
    resting: Ids
    live: Ids

    async def call(self, name: str, who: Any, ids: Ids, **how: Any) -> Outcome:
        return await self.suite.call(RPCS[name], who, make_request(name, ids), **how)

    async def seen(self, ids: Ids) -> Any:
        """Return the chat's messages, files and state version, as its owner gets them."""
        request = memory_pb2.GetChatRequest(chat_id=ids.chat, include_raw_messages=True)
        chat = await self.suite.call(RPCS["MemoryService.GetChat"], ADA, [request])
        files = await self.call("ToolService.ListFiles", ADA, ids)
        state = await self.call("MemoryService.GetState", ADA, ids)
        assert (chat.code, files.code, state.code) == ("OK", "OK", "OK"), (chat, files, state)
        return chat.reply.raw_messages, [file.path for file in files.reply.files], state.reply.version


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Stage]:
    async with serving_tenants(tmp_path_factory.mktemp("tenants")) as suite:
        ids = [Ids(*await suite.ask(ADA, "hello from ada")), Ids(*await suite.ask(ADA, SLOW))]
        for ids_of_chat in ids:
            await suite.call(RPCS["ToolService.UploadFile"], ADA, make_request("ToolService.UploadFile", ids_of_chat))
        blob = await suite.call(RPCS["MemoryService.PutBlob"], ADA, make_request("MemoryService.PutBlob", ids[0]))
        fact = await suite.call(RPCS["MemoryService.Remember"], ADA, make_request("MemoryService.Remember", ids[0]))
        create = "ScheduleService.CreateSchedule"
        schedule_id = (await suite.call(RPCS[create], ADA, make_request(create, ids[0]))).reply.schedule.schedule_id
        create = "WebhookService.CreateWebhook"
        webhook_id = (await suite.call(RPCS[create], ADA, make_request(create, ids[0]))).reply.webhook.webhook_id
        create = "KeyService.CreateKey"
        key_id = (await suite.call(RPCS[create], ADA, make_request(create, ids[0]))).reply.key.key_id
        created_ids = (blob.reply.blob_id, fact.reply.fact_id, schedule_id, webhook_id, key_id)
        yield Stage(suite, Ids(ids[0].chat, ids[0].run, *created_ids), ids[1])


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=FRONTS)
async def front(request: pytest.FixtureRequest, stage: Stage) -> AsyncGenerator[aiohttp.ClientSession]:
    async with opening_front(request.param, stage.suite) as http:
        yield http


def describe_outcome(outcome: Outcome) -> tuple[str, str, str]:
    """Return what a caller learns from an outcome, with ids masked."""
    return outcome.code, outcome.reason, re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "ID", outcome.message)


@pytest.mark.parametrize("name", RPCS)
async def test_without_a_credential_every_rpc_is_refused(name: str, stage: Stage) -> None:
    if path(RPCS[name]) not in WITHOUT_USER or name in CHECKS_ITSELF:
        assert (await stage.call(name, None, stage.resting)).code == "UNAUTHENTICATED"
    assert (await stage.call(name, None, stage.resting, as_client=True)).code == "UNAUTHENTICATED"


@pytest.mark.parametrize("name", [name for name, rpc in RPCS.items() if not is_public(rpc)])
async def test_internal_rpcs_are_refused_to_clients(name: str, stage: Stage) -> None:
    assert (await stage.call(name, ADA, stage.resting, as_client=True)).code == "PERMISSION_DENIED"


@pytest.mark.parametrize("name", FIELDS)
async def test_another_tenants_id_gets_the_same_reply_as_an_unknown_id(name: str, stage: Stage) -> None:
    before = await stage.seen(stage.resting)
    foreign = await stage.call(name, BOB, stage.resting)
    assert foreign.code == REPLIES_FOR_UNKNOWN.get(name, "NOT_FOUND"), foreign
    if name not in CREATES_CHAT:
        assert describe_outcome(foreign) == describe_outcome(await stage.call(name, BOB, Ids(fresh(), fresh())))
    assert await stage.seen(stage.resting) == before


@pytest.mark.parametrize("name", LIVE)
async def test_another_tenants_live_run_gets_the_same_reply_as_an_unknown_run(name: str, stage: Stage) -> None:
    foreign = await stage.call(name, BOB, stage.live)
    assert foreign.code == "NOT_FOUND"
    assert stage.live.run not in foreign.message or name != "AgentService.Query"
    if name not in CREATES_CHAT:
        assert describe_outcome(foreign) == describe_outcome(await stage.call(name, BOB, Ids(fresh(), fresh())))
    run = await stage.call("AgentService.GetRun", ADA, stage.live)
    assert run.reply.run.state == "running"


@pytest.mark.parametrize("name", [name for name in FIELDS if name != "MemoryService.DeleteChat"])
async def test_another_tenants_run_in_an_own_chat_is_treated_as_unknown(name: str, stage: Stage) -> None:
    chat, _ = await stage.suite.ask(BOB, "hello from bob")
    before = await stage.seen(stage.resting)
    outcome = await stage.call(name, BOB, Ids(chat, stage.resting.run))
    other = await stage.call(name, BOB, Ids(chat, fresh()))
    # If an unknown run is no error, the RPC works on the caller's own data.
    assert describe_outcome(outcome) == describe_outcome(other)
    assert await stage.seen(stage.resting) == before


@pytest.mark.parametrize("name", FIELDS)
async def test_an_invalid_id_is_refused_with_its_field(name: str, stage: Stage) -> None:
    outcome = await stage.call(name, ADA, Ids(BAD, BAD))
    assert (outcome.code, outcome.reason) == ("INVALID_ARGUMENT", "INVALID_REQUEST")
    assert re.match(
        r"(start\.|source\.|leases\[0\]\.|append\.)?"
        r"(chatId|runId|runIds\[0\]|factId|scheduleId|webhookId|keyId): must be a UUID",
        outcome.message,
    )


async def test_a_services_own_credential_lists_and_renews_runs_of_all_tenants(stage: Stage) -> None:
    listing, renewal = RPCS["MemoryService.ListUnfinishedRuns"], RPCS["MemoryService.RenewLeases"]
    outcome = await stage.suite.call(listing, None, [memory_pb2.ListUnfinishedRunsRequest()])
    assert [(run.tenant, run.user, run.run_id) for run in outcome.reply.runs] == [("acme", "ada", stage.live.run)]
    request = make_request("MemoryService.RenewLeases", stage.live)
    lost = [(await stage.suite.call(renewal, who, request)).reply.lost_run_ids for who in (None, ADA, BOB)]
    assert lost == [[], [], [stage.live.run]]


async def test_lists_and_searches_return_only_the_callers_own_data(stage: Stage) -> None:
    await stage.suite.ask(BOB, "hello from bob")
    listing, search = RPCS["MemoryService.ListChats"], RPCS["MemoryService.Search"]
    remember = RPCS["MemoryService.Remember"]
    await stage.suite.call(remember, ADA, [memory_pb2.RememberRequest(text="ada likes tea", request_id="r")])
    bobs = await stage.suite.call(remember, BOB, [memory_pb2.RememberRequest(text="bob likes tea", request_id="r")])
    for who, other in ((ADA, BOB), (BOB, ADA)):
        chats = (await stage.suite.call(listing, who, [memory_pb2.ListChatsRequest()])).reply.chats
        names = {chat.chat_name for chat in chats}
        assert any(name.startswith("hello from") for name in names)
        assert (stage.resting.chat in {chat.chat_id for chat in chats}) == (who == ADA)
        for words in ("hello from", "tea"):
            hits = (await stage.suite.call(search, who, [memory_pb2.SearchRequest(query=words)])).reply.hits
            assert hits
            assert all(other.user not in hit.excerpt for hit in hits)
    assert bobs.reply.fact_id


@pytest.mark.parametrize("route", load_routes(), ids=lambda route: f"{route.verb} {route.path}")
async def test_every_http_route_refuses_missing_foreign_and_invalid_ids(
    route: Route, stage: Stage, front: aiohttp.ClientSession
) -> None:
    name = f"{route.rpc.containing_service.name}.{route.rpc.name}"
    assert await send_request(front, route, name, stage.resting, None) == 401
    assert await send_request(front, route, name, stage.resting, "wrong") == 401
    if name in FIELDS:
        missing = 200 if name in REPLIES_FOR_UNKNOWN else 404
        assert await send_request(front, route, name, stage.resting, KEYS[BOB]) == missing
        assert await send_request(front, route, name, Ids(BAD, BAD), KEYS[ADA]) == 400
        if name not in CREATES_CHAT:
            assert await send_request(front, route, name, Ids(fresh(), fresh()), KEYS[ADA]) == missing
    elif not route.is_hook:  # A hook is authenticated by a signature.
        # A request without ids is served, or refused with the missing field.
        assert await send_request(front, route, name, stage.resting, KEYS[ADA]) in (200, 400)


async def send_request(front: aiohttp.ClientSession, route: Route, name: str, ids: Ids, key: str | None) -> int:
    """Send a route's request to a facade and return the status."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    options: dict[str, Any] = {}
    message: Any = make_request(name, ids)[0]
    if route.is_upload:
        options["data"] = form = aiohttp.FormData()
        form.add_field("chatId", ids.chat)
        form.add_field("file", b"hello", filename="notes.txt")
    elif route.is_hook:
        options["json"] = {}
    elif route.has_body:
        options["data"], headers["Content-Type"] = encode(message), "application/json"
    else:
        options["params"] = parse_qsl(parameters(message))
    path_at = route.path.replace("{schedule_id}", ids.chat)
    async with front.request(route.verb, path_at, headers=headers, **options) as response:
        assert (response.status == 401) == (response.headers.get("WWW-Authenticate") == "Bearer")
        return response.status


@pytest.mark.parametrize("name", FIELDS)
async def test_the_owner_may_call_every_rpc(name: str, stage: Stage) -> None:
    ids = stage.resting
    if name == "AgentService.Cancel":
        ids = stage.live
    outcome = await stage.call(name, ADA, ids)
    # An ended run takes no more lines or leases, and this one has no call and no grant. The maker of a key may not
    # confirm it.
    refusals = "'c_1'|'grant_1'|, or has ended|somebody else must confirm it"
    assert outcome.code in ("OK", "ABORTED") or re.search(refusals, outcome.message), outcome


async def test_a_query_in_another_tenants_chat_reveals_nothing_about_its_run(stage: Stage) -> None:
    request = agent_pb2.QueryRequest(message="hi", chat_id=stage.live.chat, agent_key="plain", when_busy="reject")
    outcome = await stage.suite.call(RPCS["AgentService.Query"], BOB, [request])
    assert outcome.code == "NOT_FOUND"
    assert stage.live.run not in outcome.message


async def test_get_identity_returns_the_credentials_user_roles_and_scopes(stage: Stage) -> None:
    caller = (await stage.call("AgentService.GetIdentity", ADA, stage.resting)).reply
    assert (caller.tenant, caller.user, list(caller.roles)) == ("acme", "ada", ["staff"])
    assert caller.credential.startswith("api_key:")
    assert caller.scopes == ["admin", "answer", "ask", "operate", "publish", "read_content"]
