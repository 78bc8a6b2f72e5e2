"""KeyService: who may, what is shown once and what is stored, limits, changes. On both engines."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import pytest
import structlog

from headrace.errors import InvalidRequest, NotFound, PermissionDenied, QuotaExceeded
from headrace.v1 import keys_pb2
from services.runtime.auth.identity import ALL_SCOPES, Identity, acting_as
from services.runtime.clock import now_ms
from tests.support.memory.engines import Serve
from tests.support.memory.keys import call
from tests.support.memory.writing import Memory, new_id

pytestmark = pytest.mark.engines

ADA, EVE = Identity("acme", "ada", scopes=ALL_SCOPES), Identity("globex", "eve", scopes=ALL_SCOPES)
DAY_MS = 86_400_000


async def make(memory: Memory, **fields: Any) -> keys_pb2.CreateKeyResponse:
    return await call(memory, "CreateKey", **{"name": "laptop", "user": "bob"} | fields)


async def test_a_key_is_made_listed_changed_and_revoked(memory: Memory) -> None:
    with acting_as(ADA):
        made = await make(memory, roles=["finance"], requests_per_minute=60)
        key = made.key
        assert made.secret.startswith("hrk_")
        assert len(made.secret) == 47
        assert key.credential == f"api_key:{hashlib.sha256(made.secret.encode()).hexdigest()[:12]}"
        assert (key.user, key.kind, key.state, key.created_by) == ("bob", "person", "active", "ada")
        assert (list(key.scopes), list(key.roles), key.requests_per_minute) == (["answer", "ask"], ["finance"], 60)
        assert not key.HasField("expires_at")
        assert (await call(memory, "GetKey", key_id=key.key_id)).key == key
        assert made.secret not in str(await call(memory, "ListKeys"))
        again = await make(memory, key_id=key.key_id, roles=["finance"], requests_per_minute=60)
        assert (again.key, again.secret) == (key, "")
        with pytest.raises(InvalidRequest, match="keyId"):
            await make(memory, key_id=key.key_id, name="another")
        changes: dict[str, Any] = {"no_roles": True, "scopes": ["operate"], "requests_per_minute": 0, "disabled": True}
        changed = (await call(memory, "UpdateKey", key_id=key.key_id, name="desk", **changes)).key
        assert (changed.name, list(changed.scopes), list(changed.roles)) == ("desk", ["operate"], [])
        assert (changed.state, changed.HasField("requests_per_minute")) == ("disabled", False)
        revoked = (await call(memory, "RevokeKey", key_id=key.key_id)).key
        assert (revoked.state, revoked.revoked_by) == ("revoked", "ada")
        assert (await call(memory, "RevokeKey", key_id=key.key_id)).key == revoked
        with pytest.raises(InvalidRequest, match="revoked"):
            await call(memory, "UpdateKey", key_id=key.key_id, disabled=False)
        other = (await make(memory, user="builds", kind="service")).key
        assert [found.key_id for found in (await call(memory, "ListKeys")).keys] == [key.key_id, other.key_id]
        assert [found.key_id for found in (await call(memory, "ListKeys", user="builds")).keys] == [other.key_id]
        assert [found.key_id for found in (await call(memory, "ListKeys", state="revoked")).keys] == [key.key_id]


async def test_a_key_has_no_more_scopes_than_who_makes_it(memory: Memory) -> None:
    with acting_as(Identity("acme", "ada", scopes=frozenset({"admin", "ask"}))):
        for scopes in (["operate"], []):  # ask and answer, where none are named
            with pytest.raises(PermissionDenied, match="so no key of it"):
                await make(memory, scopes=scopes)
        key = (await make(memory, scopes=["ask", "admin"])).key
        with pytest.raises(PermissionDenied, match="'publish'"):
            await call(memory, "UpdateKey", key_id=key.key_id, scopes=["ask", "publish"])


async def test_keys_are_of_their_tenant(memory: Memory) -> None:
    with acting_as(ADA):
        key = (await make(memory)).key
    named = {"key_id": key.key_id}
    with acting_as(EVE):
        assert not (await call(memory, "ListKeys")).keys
        for name in ("GetKey", "UpdateKey", "RevokeKey"):
            with pytest.raises(NotFound):
                await call(memory, name, **named)
        with pytest.raises(NotFound):
            await make(memory, **named)


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
async def test_what_is_wrong_is_named(memory: Memory, fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest, match=field):
        await make(memory, **fields)


async def test_a_tenant_has_so_many_keys_and_what_ended_long_ago_makes_room(serve: Serve) -> None:
    now = [now_ms()]
    async with serve(clock=lambda: now[0], key_limits={"keys_max": 2}) as memory:
        with acting_as(ADA):
            first = (await make(memory)).key
            await make(memory, expires_at=now[0] + DAY_MS)
            await call(memory, "RevokeKey", key_id=first.key_id)
            with pytest.raises(QuotaExceeded):
                await make(memory)
            now[0] += 29 * DAY_MS
            assert len((await call(memory, "ListKeys")).keys) == 2
            now[0] += 3 * DAY_MS
            assert not (await call(memory, "ListKeys")).keys
            third = (await make(memory)).key
            assert [key.key_id for key in (await call(memory, "ListKeys")).keys] == [third.key_id]


async def test_services_are_told_of_changes_in_their_order_also_after_a_restart(serve: Serve) -> None:
    async with serve() as memory:
        with acting_as(ADA):
            made = [await make(memory, name=f"key {n}") for n in range(3)]
        with acting_as(None):
            whole = await call(memory, "ReadKeyChanges")
        assert [key.key_id for key in whole.keys] == [one.key.key_id for one in made]
        assert [key.sha256 for key in whole.keys] == [hashlib.sha256(one.secret.encode()).digest() for one in made]
        with acting_as(ADA):
            await call(memory, "RevokeKey", key_id=made[1].key.key_id)
    async with serve() as memory:
        with acting_as(None):
            later = await call(memory, "ReadKeyChanges", after_revision=whole.revision)
            assert [(key.key_id, key.revoked) for key in later.keys] == [(made[1].key.key_id, True)]
            nothing = await call(memory, "ReadKeyChanges", after_revision=later.revision)
            assert (len(nothing.keys), nothing.revision, nothing.has_more) == (0, later.revision, False)
        with acting_as(ADA):
            fourth = (await make(memory, name="fourth")).key
        with acting_as(None):
            newest = await call(memory, "ReadKeyChanges", after_revision=later.revision)
        assert [key.key_id for key in newest.keys] == [fourth.key_id]


async def test_many_changes_come_in_pages(serve: Serve) -> None:
    async with serve(key_limits={"changes_max": 2}) as memory:
        with acting_as(ADA):
            made = [(await make(memory)).key.key_id for _ in range(3)]
        with acting_as(None):
            page = await call(memory, "ReadKeyChanges")
            assert ([key.key_id for key in page.keys], page.has_more) == (made[:2], True)
            rest = await call(memory, "ReadKeyChanges", after_revision=page.revision)
            assert ([key.key_id for key in rest.keys], rest.has_more) == (made[2:], False)


def read_all(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


async def test_a_keys_text_is_in_no_log_line_and_in_no_file(serve: Serve, tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as logged:
        async with serve() as memory:
            with acting_as(ADA):
                made = await make(memory, key_id=new_id())
                await call(memory, "RevokeKey", key_id=made.key.key_id)
    deeds = [line for line in logged if line["event"].startswith("api key ")]
    assert [(line["event"], line["key_id"], line["by"]) for line in deeds] == [
        ("api key made", made.key.key_id, "ada"),
        ("api key revoked", made.key.key_id, "ada"),
    ]
    secret = made.secret.removeprefix("hrk_")
    assert secret not in str(logged)
    assert secret.encode() not in await asyncio.to_thread(read_all, tmp_path)
