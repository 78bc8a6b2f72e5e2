"""Approvals that are granted for later calls, in the log and the index: who sees them, and what ends them. On both
engines.
"""

import json
from typing import Any

import pytest

from headrace.errors import InvalidRequest, NotFound, PermissionDenied
from headrace.v1 import memory_pb2
from services.runtime.auth.identity import ALL_SCOPES, Identity, acting_as
from services.runtime.clock import now_ms
from tests.support.memory.engines import Serve
from tests.support.memory.gates import approval, granting
from tests.support.memory.writing import Memory, run_line

pytestmark = pytest.mark.engines

BOB = Identity("default", "bob", scopes=frozenset({"answer"}))
OLGA = Identity("default", "olga", scopes=frozenset({"operate"}))
STRANGER = Identity("globex", "bob", scopes=frozenset({"operate"}))


async def ids(memory: Memory, **fields: Any) -> list[str]:
    return [grant.grant_id for grant in (await memory.grants(**fields)).grants]


async def begin(memory: Memory, *grants: memory_pb2.LogLine) -> tuple[str, str]:
    chat_id, run_id = await memory.begin_with(approval("approval_1", "medium"))
    await memory.append(chat_id, run_id, *grants)
    return chat_id, run_id


@pytest.mark.engines("encrypted postgres")
async def test_a_grant_is_in_force_until_its_run_ends_it_expires_or_it_is_revoked(serve: Serve) -> None:
    async with serve() as memory:
        expired = granting("g_3", expires_at=now_ms() - 1)
        chat_id, run_id = await begin(memory, granting("g_1", "run"), granting("g_2"), expired, granting("g_4"))
        assert await ids(memory, chat_id=chat_id) == ["g_1", "g_2", "g_4"]
        [_, grant, _] = (await memory.grants()).grants
        assert (grant.chat_id, grant.run_id, grant.scope, grant.tool_name) == (chat_id, run_id, "chat", "pay")
        assert (grant.risk, [*grant.made_by], grant.requester) == ("medium", ["bob"], "default")
        assert [*grant.answerers.any_of] == ["tenant"]
        assert [text.replace("\0", "") for text in grant.grounds] == ["medium risk: itcosts"]
        await memory.append(chat_id, run_id, run_line())
        assert await ids(memory) == ["g_2", "g_4"]
        assert await memory.revoke_grant(chat_id, "g_4") == "revoked"
    async with serve() as memory:
        assert await ids(memory) == ["g_2"]
        for grant_id, status in ("g_4", "revoked"), ("g_3", "ended"), ("g_1", "ended"), ("g_2", "revoked"):
            assert await memory.revoke_grant(chat_id, grant_id) == status
        assert await ids(memory) == []
        with pytest.raises(NotFound, match="has no grant 'g_5'"):
            await memory.revoke_grant(chat_id, "g_5")


async def test_a_grant_is_seen_and_revoked_by_its_makers_the_chat_owner_and_operators(memory: Memory) -> None:
    chat_id, _ = await begin(memory, granting("g_1"), granting("g_2", made_by=["ada", "bob"]), granting("g_3"))
    with acting_as(Identity("default", "cleo")):
        assert await ids(memory) == []
        with pytest.raises(NotFound):
            await memory.revoke_grant(chat_id, "g_1")
        with pytest.raises(PermissionDenied):
            await ids(memory, scope="tenant")
    with acting_as(STRANGER):
        assert await ids(memory, scope="tenant") == []
        with pytest.raises(NotFound):
            await memory.revoke_grant(chat_id, "g_1")
    with acting_as(Identity("default", "ada")):
        assert await ids(memory) == ["g_2"]
    with acting_as(BOB):
        assert await ids(memory) == ["g_1", "g_2", "g_3"]
        assert await memory.revoke_grant(chat_id, "g_1") == "revoked"
    with acting_as(OLGA):
        assert await ids(memory) == []
        assert await ids(memory, scope="tenant") == ["g_2", "g_3"]
        assert await memory.revoke_grant(chat_id, "g_2") == "revoked"
    assert await memory.revoke_grant(chat_id, "g_3") == "revoked"
    with acting_as(Identity("default", "olga", scopes=ALL_SCOPES)):
        lines = (await memory.call("ListAudit", event="grant.revoked")).lines
    assert [(line.by, json.loads(line.line)["grantId"]) for line in lines[::-1]] == [
        *(("bob", "g_1"), ("olga", "g_2"), ("default", "g_3"))
    ]


async def test_a_revert_to_before_a_grant_ends_it_and_no_revert_restores_one(memory: Memory) -> None:
    chat_id, run_id = await begin(memory, granting("g_1"))
    await memory.append(chat_id, run_id, run_line())
    assert await memory.revoke_grant(chat_id, "g_1") == "revoked"
    await memory.begin_with(approval("approval_1", "medium"), granting("g_2"), run_line(), chat_id=chat_id)
    await memory.begin_with(run_line(), chat_id=chat_id)
    await memory.revert(chat_id, 2)
    assert await ids(memory) == ["g_2"], "what was taken back came behind it"
    await memory.revert(chat_id, 1, scope="model")
    assert await ids(memory) == []
    assert await memory.revoke_grant(chat_id, "g_2") == "ended"
    await memory.revert(chat_id, 0)
    assert await ids(memory) == []


async def test_a_fork_has_no_grants_and_the_original_chat_keeps_its_own(serve: Serve) -> None:
    async with serve() as memory:
        chat_id, run_id = await begin(memory, granting("g_1"))
        fork = await memory.fork(chat_id)
        assert await ids(memory, chat_id=fork) == []
        assert await ids(memory) == ["g_1"]
        assert await memory.revoke_grant(fork, "g_1") == "revoked"
        await memory.append(chat_id, run_id, run_line())
    async with serve() as memory:
        assert await ids(memory, chat_id=fork) == []
        assert await ids(memory) == ["g_1"]


async def test_a_page_continues_after_the_last_grant_of_the_previous_one(memory: Memory) -> None:
    await begin(memory, *(granting(f"g_{number}") for number in range(3)))
    first = await memory.grants(page_size=2)
    assert [grant.grant_id for grant in first.grants] == ["g_0", "g_1"]
    assert await ids(memory, page_size=2, page_token=first.next_page_token) == ["g_2"]
    with pytest.raises(InvalidRequest, match="pageToken"):
        await ids(memory, page_token="1")
