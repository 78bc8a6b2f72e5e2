"""The runs of a tenant as operators see them, on both engines."""

import asyncio
from typing import Any

import pytest

from headrace.errors import InvalidRequest, PermissionDenied
from headrace.v1 import common_pb2, operator_pb2
from services.runtime.auth.identity import ALL_SCOPES, Identity, acting_as
from tests.support.memory.engines import Serve
from tests.support.memory.gates import opening
from tests.support.memory.spend import charge, said
from tests.support.memory.writing import Memory, run_line

pytestmark = pytest.mark.engines

USERS = [Identity("acme", name, f"api_key:{name}", scopes=ALL_SCOPES) for name in ("ada", "bob")]
STRANGER = Identity("globex", "ada", scopes=ALL_SCOPES)
FAILED = common_pb2.Failure(code="OVERLOADED", message="later")


async def list_runs(memory: Memory, **fields: Any) -> list[operator_pb2.OperatorRun]:
    with acting_as(USERS[1]):
        return list((await memory.tenant_runs(**fields)).runs)


async def make_runs(memory: Memory) -> dict[str, str]:
    """Make runs of two users and of another tenant; return the ids of the former by state."""
    run_ids: dict[str, str] = {}
    with acting_as(USERS[0]):
        chat_id, run_ids["completed"] = await memory.begin()
        await memory.append(
            chat_id, run_ids["completed"], said(charge(), charge(nano_usd=2)), run_line(finish_reason="stop")
        )
        await asyncio.sleep(0.002)  # so that no two begin in the same millisecond
        chat_id, run_ids["waiting"] = await memory.begin_with(opening("g_1"))
        await asyncio.sleep(0.002)
    with acting_as(USERS[1]):
        chat_id, run_ids["failed"] = await memory.begin_with(run_line(state="failed", error=FAILED), agent_key="clerk")
        await asyncio.sleep(0.002)
        _, run_ids["running"] = await memory.begin(chat_id=chat_id, agent_key="clerk")
    await memory.acting_as(STRANGER).begin()
    return run_ids


@pytest.mark.engines("postgres")
async def test_runs_are_filtered_by_their_fields(serve: Serve) -> None:
    async with serve() as memory:
        run_ids = await make_runs(memory)
    # All of it is still there after a restart.
    async with serve() as memory:
        runs = await list_runs(memory)
        assert [(run.run_id, run.state) for run in runs] == [(run_ids[state], state) for state in reversed(run_ids)]
        first = runs[-1]
        assert (first.user, first.reason, first.model_calls, first.cost_nano_usd) == ("ada", "stop", 2, 1_502)
        assert (first.input_tokens, first.output_tokens, first.credential) == (200, 14, "api_key:ada")
        assert first.updated_at >= first.began_at > 0
        assert [run.reason for run in runs] == ["", "OVERLOADED", "", "stop"]
        for fields, states in (
            ({"state": "live"}, ["running", "waiting"]),
            ({"state": "waiting"}, ["waiting"]),
            ({"state": "running"}, ["running"]),
            ({"state": "failed"}, ["failed"]),
            ({"user": "ada"}, ["waiting", "completed"]),
            ({"agent_key": "clerk"}, ["running", "failed"]),
            ({"cost_at_least_nano_usd": 1_502}, ["completed"]),
            ({"cost_at_least_nano_usd": 1_503}, []),
            ({"began_after": first.began_at}, ["running", "failed", "waiting"]),
            ({"older_than_ms": 3_600_000}, []),
            ({"run_ids": [run_ids["failed"], run_ids["waiting"]]}, ["failed", "waiting"]),
            ({"user": "ada", "state": "live"}, ["waiting"]),
            ({"user": "a\0b"}, []),
        ):
            assert [run.state for run in await list_runs(memory, **fields)] == states, fields
        # A run that was reverted stays in the list.
        with acting_as(USERS[0]):
            await memory.append(first.chat_id, (await memory.begin(chat_id=first.chat_id))[1], run_line())
            await memory.revert(first.chat_id, 0)
        assert first.run_id in [run.run_id for run in await list_runs(memory)]
        await memory.acting_as(USERS[0]).delete(first.chat_id)
        assert first.run_id not in [run.run_id for run in await list_runs(memory)]


async def test_pages_are_complete_even_if_runs_start_meanwhile(memory: Memory) -> None:
    with acting_as(USERS[0]):
        runs = [(await memory.begin())[1] for _ in range(7)]
        token, run_ids = "", list[str]()
        while True:
            page = await memory.tenant_runs(page_size=3, page_token=token)
            run_ids += [run.run_id for run in page.runs]
            await memory.begin()
            if not (token := page.next_page_token):
                break
    assert sorted(run_ids) == sorted(runs)
    assert len(run_ids) == 7


async def test_only_operators_list_runs_and_only_those_of_their_tenant(memory: Memory) -> None:
    await make_runs(memory)
    assert len((await memory.acting_as(STRANGER).tenant_runs()).runs) == 1
    with acting_as(Identity("acme", "ada")), pytest.raises(PermissionDenied):
        await memory.tenant_runs()
    with acting_as(USERS[0]):
        for token in ("x", "1.x", f"1.{'-' * 36} OR 1=1"):
            with pytest.raises(InvalidRequest, match="pageToken"):
                await memory.tenant_runs(page_token=token)
        with pytest.raises(InvalidRequest, match="pageSize"):
            await memory.tenant_runs(page_size=201)
