"""KeyService on both engines: permissions, secrets that are shown once, limits and changes; and calls and runs that API
keys may use, counted over all services of a store at once.
"""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog

from headrace.errors import InvalidRequest, NotFound, PermissionDenied, QuotaExceeded
from headrace.v1 import keys_pb2, memory_pb2
from services.memory.storage.records.keys import StoredKey
from services.runtime.auth.identity import ALL_SCOPES, Identity, acting_as
from services.runtime.clock import now_ms
from tests.support.memory.engines import Files, Kept, Serve
from tests.support.memory.writing import Memory, new_id, query_line, run_line

pytestmark = pytest.mark.engines

ADA, EVE = (
    Identity(tenant, user, roles=frozenset(["finance"]), scopes=ALL_SCOPES)
    for tenant, user in (("acme", "ada"), ("globex", "eve"))
)
OLGA, BOB = Identity("acme", "olga", scopes=ALL_SCOPES), Identity("acme", "bob")
DAY_MS = 86_400_000


async def make_key_request(memory: Memory, **fields: Any) -> keys_pb2.CreateKeyResponse:
    return await memory.call("CreateKey", **{"name": "laptop", "user": "bob"} | fields)


async def test_a_key_is_created_listed_changed_and_revoked(memory: Memory) -> None:
    with acting_as(ADA):
        created = await make_key_request(memory, roles=["finance"], requests_per_minute=60)
        key = created.key
        assert created.secret.startswith("hrk_")
        assert len(created.secret) == 47
        assert key.credential == f"api_key:{hashlib.sha256(created.secret.encode()).hexdigest()[:12]}"
        assert (key.user, key.kind, key.state, key.created_by) == ("bob", "person", "unconfirmed", "ada")
        assert (list(key.scopes), list(key.roles), key.requests_per_minute) == (["answer", "ask"], ["finance"], 60)
        assert not key.HasField("expires_at")
        assert (await memory.call("GetKey", key_id=key.key_id)).key == key
        assert created.secret not in str(await memory.call("ListKeys"))
        again = await make_key_request(memory, key_id=key.key_id, roles=["finance"], requests_per_minute=60)
        assert (again.key, again.secret) == (key, "")
        with pytest.raises(InvalidRequest, match="keyId"):
            await make_key_request(memory, key_id=key.key_id, name="another")
        changes: dict[str, Any] = {"no_roles": True, "scopes": ["operate"], "requests_per_minute": 0, "disabled": True}
        changed = (await memory.call("UpdateKey", key_id=key.key_id, name="desk", **changes)).key
        assert (changed.name, list(changed.scopes), list(changed.roles)) == ("desk", ["operate"], [])
        assert (changed.state, changed.HasField("requests_per_minute")) == ("unconfirmed", False)
        revoked = (await memory.call("RevokeKey", key_id=key.key_id)).key
        assert (revoked.state, revoked.revoked_by) == ("revoked", "ada")
        assert (await memory.call("RevokeKey", key_id=key.key_id)).key == revoked
        with pytest.raises(InvalidRequest, match="revoked"):
            await memory.call("UpdateKey", key_id=key.key_id, disabled=False)
        other = (await make_key_request(memory, user="builds", kind="service")).key
        assert [found.key_id for found in (await memory.call("ListKeys")).keys] == [key.key_id, other.key_id]
        assert [found.key_id for found in (await memory.call("ListKeys", user="builds")).keys] == [other.key_id]
        assert [found.key_id for found in (await memory.call("ListKeys", state="revoked")).keys] == [key.key_id]
    assert not (await memory.call_as(EVE, "ListKeys")).keys


async def test_a_key_gets_only_scopes_its_creator_has(memory: Memory) -> None:
    with acting_as(Identity("acme", "ada", scopes=frozenset({"admin", "ask"}))):
        for scopes in (["operate"], []):  # ask and answer, where none are named
            with pytest.raises(PermissionDenied, match="so no key of it"):
                await make_key_request(memory, scopes=scopes)
        key = (await make_key_request(memory, scopes=["ask", "admin"])).key
        with pytest.raises(PermissionDenied, match="'publish'"):
            await memory.call("UpdateKey", key_id=key.key_id, scopes=["ask", "publish"])


async def test_a_key_gets_only_roles_its_creator_has_or_the_operator_allows(serve: Serve) -> None:
    async with serve(key_limits={"roles": ["staff"]}) as memory:
        with acting_as(ADA):
            key = (await make_key_request(memory, roles=["finance", "staff"])).key
            with pytest.raises(PermissionDenied, match="'board' is none of yours"):
                await make_key_request(memory, roles=["staff", "board"])
            with pytest.raises(PermissionDenied, match="'board' is none of yours"):
                await memory.call("UpdateKey", key_id=key.key_id, roles=["finance", "board"])
        with acting_as(OLGA):  # an existing role may stay, or be removed
            await memory.call("UpdateKey", key_id=key.key_id, roles=["finance"])


async def read_record(memory: Memory, key_id: str) -> keys_pb2.KeyRecord:
    found = await memory.call_as(None, "ReadKeyChanges")
    return next(record for record in found.keys if record.key_id == key_id)


async def test_a_key_for_another_user_works_once_a_second_admin_confirms_it(memory: Memory) -> None:
    with acting_as(ADA):
        own, created = (await make_key_request(memory, user="ada")).key, await make_key_request(memory)
        key_id = created.key.key_id
        assert (own.state, [*own.makers], [*created.key.makers]) == ("active", [], ["ada"])
        with pytest.raises(PermissionDenied, match="'ada' has made this key"):
            await memory.call("ConfirmKey", key_id=key_id)
    record = await read_record(memory, key_id)
    assert (record.unconfirmed, record.disabled, [*record.makers]) == (True, True, ["ada"])
    ghost = replace(OLGA, makers=frozenset(["ada"]))  # with a key of Olga's that Ada has made
    with acting_as(ghost), pytest.raises(PermissionDenied, match="'ada' has made this key"):
        await memory.call("ConfirmKey", key_id=key_id)
    for stranger in (EVE, Identity("acme", "dan")):
        with acting_as(stranger), pytest.raises(NotFound):
            await memory.call("ConfirmKey", key_id=key_id)
    with acting_as(OLGA):
        for _ in range(2):
            confirmed = await memory.call("ConfirmKey", key_id=key_id)
            assert (confirmed.key.state, confirmed.key.confirmed_by, confirmed.secret) == ("active", "olga", "")
        lines = (await memory.call("ListAudit", event="key.confirmed")).lines
        assert [line.by for line in lines] == ["olga"]
    record = await read_record(memory, key_id)
    assert (record.unconfirmed, record.disabled, [*record.makers]) == (False, False, ["ada"])
    assert record.sha256 == hashlib.sha256(created.secret.encode()).digest()
    with acting_as(ADA):
        assert (await memory.call("UpdateKey", key_id=key_id, name="desk")).key.state == "active"
        widened = await memory.call("UpdateKey", key_id=key_id, scopes=["answer", "ask", "operate"])
        assert widened.key.state == "unconfirmed", "what it is good for was not confirmed"


async def test_an_extended_expiry_of_a_key_known_to_its_maker_must_be_confirmed_again(serve: Serve) -> None:
    now = [now_ms()]
    async with serve(clock=lambda: now[0]) as memory:
        for until, later in ((1_000, 2_000), (1_000, 0)):
            with acting_as(ADA):
                key_id = (await make_key_request(memory, expires_at=now[0] + until)).key.key_id
            with acting_as(OLGA):
                await memory.call("ConfirmKey", key_id=key_id)
            with acting_as(ADA):
                sooner = await memory.call("UpdateKey", key_id=key_id, expires_at=now[0] + until // 2)
                assert sooner.key.state == "active"
                now[0] += until
                longer = await memory.call("UpdateKey", key_id=key_id, expires_at=later and now[0] + later)
                assert longer.key.state == "unconfirmed"


async def test_confirming_ones_own_key_returns_a_secret_nobody_else_has(memory: Memory) -> None:
    created = await memory.call_as(ADA, "CreateKey", name="laptop", user="bob")
    with acting_as(BOB):
        own = await memory.call("ConfirmKey", key_id=created.key.key_id)
    assert own.secret.startswith("hrk_")
    assert own.secret != created.secret
    assert (own.key.state, [*own.key.makers]) == ("active", [])
    record = await read_record(memory, created.key.key_id)
    assert (record.sha256, [*record.makers]) == (hashlib.sha256(own.secret.encode()).digest(), [])
    with acting_as(ADA):
        widened = await memory.call("UpdateKey", key_id=created.key.key_id, scopes=["answer", "ask", "operate"])
    assert widened.key.state == "active", "nobody but Bob has it"
    with acting_as(BOB), pytest.raises(PermissionDenied, match="operate"):
        await memory.call("ConfirmKey", key_id=created.key.key_id)
    with acting_as(replace(BOB, scopes=ALL_SCOPES)):
        assert (await memory.call("ConfirmKey", key_id=created.key.key_id)).secret not in ("", own.secret)


async def test_a_key_created_with_a_key_lists_the_makers_of_both(memory: Memory) -> None:
    with acting_as(replace(OLGA, makers=frozenset(["ada"]))):
        own, other = (await make_key_request(memory, user="olga")).key, (await make_key_request(memory, user="bob")).key
    assert (own.state, [*own.makers]) == ("active", ["ada"])
    assert (other.state, [*other.makers]) == ("unconfirmed", ["ada", "olga"])


@pytest.mark.engines("files")
async def test_a_key_stored_by_an_earlier_version_works_and_its_maker_is_known() -> None:
    key = msgspec.json.decode(EARLIER, type=StoredKey)
    assert (key.find_state(now_ms()), key.list_makers()) == ("active", ("ada",))


EARLIER = (
    b'{"keyId":"KEY","tenant":"acme","user":"bob","version":1,"sha256":"00","name":"laptop","scopes":["ask"],'
    b'"createdAt":1,"createdBy":"ada","updatedAt":1}'
)
"""As stored by a version that did not record makers."""


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": ""}, "name"),
        ({"user": "two words"}, "user"),
        ({"roles": ["a,b"]}, "roles"),
        ({"scopes": ["everything"]}, "scopes"),
        ({"kind": "robot"}, "kind"),
        ({"expires_at": 1}, "expiresAt"),
        ({"runs_max": 0}, "runsMax"),
        ({"requests_per_minute": -1}, "requestsPerMinute"),
    ],
)
async def test_an_invalid_field_is_named(memory: Memory, fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest, match=field):
        await make_key_request(memory, **fields)


async def test_the_number_of_a_tenants_keys_is_bounded_and_keys_ended_long_ago_are_removed(serve: Serve) -> None:
    now = [now_ms()]
    async with serve(clock=lambda: now[0], key_limits={"keys_max": 2}) as memory:
        with acting_as(ADA):
            first = (await make_key_request(memory)).key
            await make_key_request(memory, expires_at=now[0] + DAY_MS)
            await memory.call("RevokeKey", key_id=first.key_id)
            with pytest.raises(QuotaExceeded):
                await make_key_request(memory)
            now[0] += 29 * DAY_MS
            assert len((await memory.call("ListKeys")).keys) == 2
            now[0] += 3 * DAY_MS
            assert not (await memory.call("ListKeys")).keys
            third = (await make_key_request(memory)).key
            assert [key.key_id for key in (await memory.call("ListKeys")).keys] == [third.key_id]


async def test_key_changes_are_read_in_order_and_after_a_restart(serve: Serve) -> None:
    async with serve() as memory:
        with acting_as(ADA):
            created = [await make_key_request(memory, name=f"key {n}") for n in range(3)]
        whole = await memory.call_as(None, "ReadKeyChanges")
        assert [key.key_id for key in whole.keys] == [response.key.key_id for response in created]
        assert [key.sha256 for key in whole.keys] == [
            hashlib.sha256(response.secret.encode()).digest() for response in created
        ]
        await memory.call_as(ADA, "RevokeKey", key_id=created[1].key.key_id)
    async with serve() as memory:
        with acting_as(None):
            later = await memory.call("ReadKeyChanges", after_revision=whole.revision)
            assert [(key.key_id, key.revoked) for key in later.keys] == [(created[1].key.key_id, True)]
            nothing = await memory.call("ReadKeyChanges", after_revision=later.revision)
            assert (len(nothing.keys), nothing.revision, nothing.has_more) == (0, later.revision, False)
        with acting_as(ADA):
            fourth = (await make_key_request(memory, name="fourth")).key
        newest = await memory.call_as(None, "ReadKeyChanges", after_revision=later.revision)
        assert [key.key_id for key in newest.keys] == [fourth.key_id]


async def test_many_key_changes_come_in_pages(serve: Serve) -> None:
    async with serve(key_limits={"changes_max": 2}) as memory:
        with acting_as(ADA):
            key_ids = [(await make_key_request(memory)).key.key_id for _ in range(3)]
        with acting_as(None):
            page = await memory.call("ReadKeyChanges")
            assert ([key.key_id for key in page.keys], page.has_more) == (key_ids[:2], True)
            last_page = await memory.call("ReadKeyChanges", after_revision=page.revision)
            assert ([key.key_id for key in last_page.keys], last_page.has_more) == (key_ids[2:], False)


def read_all(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


async def test_a_keys_secret_is_in_no_log_line_and_no_file(serve: Serve, tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as logs:
        async with serve() as memory:
            with acting_as(ADA):
                created = await make_key_request(memory, key_id=new_id())
                await memory.call("RevokeKey", key_id=created.key.key_id)
    key_events = [line for line in logs if line["event"].startswith("api key ")]
    assert [(line["event"], line["key_id"], line["by"]) for line in key_events] == [
        ("api key made", created.key.key_id, "ada"),
        ("api key revoked", created.key.key_id, "ada"),
    ]
    secret = created.secret.removeprefix("hrk_")
    assert secret not in str(logs)
    assert secret.encode() not in await asyncio.to_thread(read_all, tmp_path)


ADMIN = Identity("acme", "op", scopes=ALL_SCOPES)


CAT = Identity("acme", "cat", credential="api_key:0123456789ab", scopes=ALL_SCOPES)


OTHER = replace(CAT, credential="api_key:ba9876543210")


MINUTE_MS = 60_000


class KeyServices:
    """One service of a folder, or three of a database, with one clock."""

    def __init__(self) -> None:
        self.now = 1_800_000_000_000
        self.services: list[Memory] = []

    async def open(self, kept: Kept, stack: AsyncExitStack) -> KeyServices:
        for _ in range(1 if isinstance(kept, Files) else 3):
            self.services.append(await stack.enter_async_context(kept.memory(clock=lambda: self.now)))
        return self

    async def make_key(self, **limits: int) -> str:
        given: dict[str, Any] = {"name": "of the test", "user": "cat", "scopes": ["ask"]}
        return (await self.services[0].call_as(ADMIN, "CreateKey", **given, **limits)).key.key_id

    async def take(self, key_id: str, wanted: int, service: int = 0) -> keys_pb2.TakeKeyCallsResponse:
        memory = self.services[service % len(self.services)]
        return await memory.call_as(None, "TakeKeyCalls", key_id=key_id, wanted=wanted)

    async def begin(self, who: Identity, most: int, service: int = 0, **ids: str) -> tuple[str, str]:
        """Begin a run as an orchestrator does, and return the ids of its chat and run."""
        memory = self.services[service % len(self.services)]
        chat_id, run_id = ids.get("chat_id") or new_id(), ids.get("run_id") or new_id()
        append = memory_pb2.AppendRequest(chat_id=chat_id, run_id=run_id, request_id=run_id, key_runs_max=most)
        append.lines.append(query_line("hello"))
        await memory.call_as(who, "BeginRun", append=append)
        return chat_id, run_id

    async def end(self, who: Identity, chat_id: str, run_id: str) -> None:
        with acting_as(who):
            await self.services[0].append(chat_id, run_id, run_line())


@pytest.mark.engines("postgres")
async def test_all_services_together_grant_a_keys_calls_and_no_more(kept: Kept) -> None:
    async with asyncio.timeout(100), AsyncExitStack() as stack:
        stage = await KeyServices().open(kept, stack)
        key_id = await stage.make_key(requests_per_minute=100)
        grants = await asyncio.gather(*(stage.take(key_id, 7, number) for number in range(30)))
        assert sum(grant.granted for grant in grants) == 100
        refused = [grant for grant in grants if not grant.granted]
        assert {(grant.retry_after_ms, grant.full_in_ms) for grant in refused} == {(600, MINUTE_MS)}
        stage.now += 600
        assert [(await stage.take(key_id, 7, number)).granted for number in range(3)] == [1, 0, 0]
        stage.now += MINUTE_MS
        assert (await stage.take(key_id, 1_000)).granted == 100, "never more than a minute's"
        unlimited = await stage.make_key()
        for key_without_limit in (unlimited, new_id()):
            with pytest.raises(NotFound):
                await stage.take(key_without_limit, 1)


async def test_a_service_with_a_slow_clock_grants_no_calls_and_returns_none(kept: Kept) -> None:
    async with AsyncExitStack() as stack:
        stage = await KeyServices().open(kept, stack)
        key_id = await stage.make_key(requests_per_minute=6)
        assert (await stage.take(key_id, 10)).granted == 6
        stage.now -= 5_000
        response = await stage.take(key_id, 10, service=1)
        assert (response.granted, response.retry_after_ms, response.full_in_ms) == (0, 15_000, MINUTE_MS + 5_000)
        stage.now += 5_000
        assert (await stage.take(key_id, 10)).granted == 0


async def test_all_services_together_start_a_keys_runs_up_to_the_limit(kept: Kept) -> None:
    async with asyncio.timeout(100), AsyncExitStack() as stack:
        stage = await KeyServices().open(kept, stack)
        results = await asyncio.gather(*(stage.begin(CAT, 3, number) for number in range(12)), return_exceptions=True)
        runs = [result for result in results if isinstance(result, tuple)]
        refused = [result for result in results if isinstance(result, QuotaExceeded)]
        assert (len(runs), len(refused)) == (3, 9)
        assert "3 live runs already" in refused[0].message
        await stage.begin(OTHER, 3)
        await stage.begin(replace(CAT, credential=""), 0)
        await stage.begin(
            CAT, 3, chat_id=runs[0][0], run_id=runs[0][1]
        )  # a repeated request gets the first reply again
        await stage.end(CAT, *runs[0])
        runs.append(await stage.begin(CAT, 3, 1))
        with pytest.raises(QuotaExceeded):
            await stage.begin(CAT, 3, 2)


async def test_a_run_refused_for_another_reason_does_not_count(kept: Kept) -> None:
    async with asyncio.timeout(100), AsyncExitStack() as stack:
        stage = await KeyServices().open(kept, stack)
        theirs, _ = await stage.begin(replace(CAT, user="dan", credential="api_key:dddddddddddd"), 5)
        for _ in range(3):
            with pytest.raises(NotFound):
                await stage.begin(CAT, 1, chat_id=theirs)
        await stage.begin(CAT, 1)


async def test_suspending_and_releasing_a_user_stays_in_the_tenant_and_reaches_services(memory: Memory) -> None:
    async def read() -> list[tuple[str, str, bool]]:
        records = (await memory.call_as(None, "ReadKeyChanges")).keys
        return [(record.tenant, record.user, record.revoked) for record in records if record.suspends]

    with acting_as(ADA):
        for user, rule in (("ada", "your own"), ("two words", "visible ASCII")):
            with pytest.raises(InvalidRequest, match=rule):
                await memory.call("SuspendUser", user=user)
        with pytest.raises(NotFound):
            await memory.call("ReleaseUser", user="bob")
        created = (await make_key_request(memory)).key
        suspended = (await memory.call("SuspendUser", user="bob")).user
        assert (await memory.call("SuspendUser", user="bob")).user == suspended
        assert [*(await memory.call("ListSuspendedUsers")).users] == [suspended]
        assert [key.key_id for key in (await memory.call("ListKeys")).keys] == [created.key_id]
        assert await read() == [("acme", "bob", False)]
        hidden = next(
            key_record for key_record in (await memory.call_as(None, "ReadKeyChanges")).keys if key_record.suspends
        )
        for rpc in ("GetKey", "RevokeKey", "UpdateKey", "ConfirmKey"):
            with pytest.raises(NotFound):
                await memory.call(rpc, key_id=hidden.key_id)
        with pytest.raises(NotFound):
            await make_key_request(memory, key_id=hidden.key_id)
    assert not (await memory.call_as(EVE, "ListSuspendedUsers")).users
    with pytest.raises(NotFound):
        await memory.call_as(EVE, "ReleaseUser", user="bob")
    with acting_as(ADA):
        for _ in range(2):
            await memory.call("ReleaseUser", user="bob")
        assert await read() == [("acme", "bob", True)]
        await memory.call("SuspendUser", user="bob")
        assert await read() == [("acme", "bob", False)]
        lines = (await memory.call("ListAudit", event="user")).lines
        assert [line.event for line in lines] == ["user.suspended", "user.released", "user.suspended"]
