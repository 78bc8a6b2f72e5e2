"""Spend in the index: each charge of a line is counted once, even if it is reverted, forked, deleted or rebuilt. On
both engines.
"""

import asyncio
from typing import Any

import pytest

from headrace.errors import InvalidRequest, PermissionDenied
from headrace.v1 import common_pb2, spend_pb2
from services.runtime.auth.identity import ALL_SCOPES, Identity, acting_as
from services.runtime.clock import now_utc
from tests.support.memory.engines import Serve
from tests.support.memory.gates import opening, submitted
from tests.support.memory.messages import content
from tests.support.memory.spend import charge, charged, said, total
from tests.support.memory.writing import Memory, new_id, query_line, run_line, step_line

pytestmark = pytest.mark.engines

NOTHING = common_pb2.Usage()


def to_sums(row: spend_pb2.UsageRow) -> tuple[int, int, int, int, int]:
    return row.input_tokens, row.output_tokens, row.cached_tokens, row.model_calls, row.cost_nano_usd


@pytest.mark.engines("encrypted postgres")
async def test_charges_are_summed_by_day_agent_and_model(serve: Serve) -> None:
    async with serve() as memory:
        chat_id, run_id = await memory.begin_with(said(charge(), charge(nano_usd=2)))
        await memory.append(chat_id, run_id, said(charge("other/one", 5, agent_key="helper")), said(charge()))
        # The end repeats charges of earlier lines, and adds nothing.
        await memory.append(chat_id, run_id, charged(run_line(), charge("other/one", 7)))
        usage = await memory.usage(group_by=["model", "day", "agent"])
    today = now_utc().date().isoformat()
    expected = [
        ("writer", "simulator/demo", (300, 21, 180, 3, 3_002)),
        ("writer", "other/one", (100, 7, 60, 1, 7)),
        ("helper", "other/one", (100, 7, 60, 1, 5)),
    ]
    assert [(row.agent_key, row.model, to_sums(row)) for row in usage.rows] == expected
    assert {row.day for row in usage.rows} == {today} == {usage.to_day}
    assert to_sums(usage.total) == (500, 35, 300, 5, 3_014)
    async with serve() as memory:
        assert await memory.usage(group_by=["model", "day", "agent"]) == usage
        [row] = (await memory.usage()).rows
        assert row == usage.total
        assert await total(memory, model="other/one") == 12
        assert await total(memory, model="other/one", agent_key="helper") == 5
        assert await total(memory, to_day="2020-01-01") == 0
        assert not (await memory.usage(to_day="2020-01-01", group_by=["day"])).rows


async def test_a_repeated_append_is_charged_once_and_concurrent_appends_are_each_charged(memory: Memory) -> None:
    chat_id, run_id = await memory.begin()
    request_id = new_id()
    for _ in range(3):
        await memory.append(chat_id, run_id, said(charge()), request_id=request_id)
    appends = [memory.append(chat_id, run_id, said(charge(nano_usd=1))) for _ in range(20)]
    await asyncio.gather(*appends)
    assert await total(memory) == 1_520


async def test_reverted_and_deleted_runs_stay_charged(serve: Serve) -> None:
    async with serve() as memory:
        chat_id, _ = await memory.begin_with(said(charge()), run_line(usage=NOTHING))
        await memory.revert(chat_id, 0)
        await memory.begin_with(said(charge(nano_usd=1)), run_line(usage=NOTHING), chat_id=chat_id)
        assert await total(memory) == 1_501
        await memory.delete(chat_id)
        assert await total(memory) == 1_501
        other, _ = await memory.begin_with(said(charge(nano_usd=10)), run_line(usage=NOTHING))
        await memory.delete(other)
        assert await total(memory, group_by=["model"]) == 1_511
    async with serve() as memory:
        assert await total(memory) == 1_511


async def test_chats_deleted_at_the_same_time_stay_charged(memory: Memory) -> None:
    models = [f"model {n:03}" for n in range(200)]
    chats: list[str] = []
    for names in (models, models[::-1]) * 2:  # their rows are locked in opposite orders
        chat_id, run_id = await memory.begin()
        for start in range(0, len(names), 100):
            await memory.append(chat_id, run_id, said(*(charge(name, 1) for name in names[start : start + 100])))
        await memory.append(chat_id, run_id, run_line(usage=NOTHING))
        chats.append(chat_id)
    await asyncio.gather(*map(memory.delete, chats))
    assert await total(memory) == 800


async def test_the_sums_of_all_scopes_agree(memory: Memory) -> None:
    """Each group is read from the narrowest sums that have its columns."""
    chats = [(await memory.begin_with(said(charge(), charge("other", 7)), run_line(usage=NOTHING)))[0] for _ in "123"]
    await memory.delete(chats[0])
    await memory.revert(chats[1], 0)
    with acting_as(Identity("acme", "ada", "api_key:0123456789ab", scopes=ALL_SCOPES)):
        assert await total(memory, scope="tenant") == 0
        keyed, run_id = await memory.begin_with(said(charge(agent_key="helper"), charge("other", 2)))
        await memory.append(keyed, run_id, said(charge("other", 1)), run_line(usage=NOTHING))
        await memory.delete(keyed)
        for by in ([], ["agent"], ["agent", "model"], ["user"], ["key"], ["day", "user", "agent", "model", "key"]):
            usage = await memory.usage(scope="tenant", group_by=by)
            assert to_sums(usage.total) == (300, 21, 180, 3, 1_503)
            assert sum(row.cost_nano_usd for row in usage.rows) == 1_503
        rows = (await memory.usage(group_by=["agent"])).rows
        assert {row.agent_key: row.cost_nano_usd for row in rows} == {"helper": 1_500, "writer": 3}
    assert await total(memory) == 3 * 1_507


async def test_a_fork_is_not_charged_again(memory: Memory) -> None:
    chat_id, _ = await memory.begin_with(said(charge()), run_line())
    _, older = await memory.begin(chat_id=chat_id)
    await memory.append(chat_id, older, run_line(usage=common_pb2.Usage(input_tokens=3, cost_usd=0.000_002)))
    forks = [await memory.fork(chat_id), await memory.fork(await memory.fork(chat_id))]
    assert await total(memory) == 3_500
    # Reading the whole fork again charges nothing either.
    await memory.revert(forks[0], 0)
    assert await total(memory) == 3_500


async def test_a_run_of_an_earlier_version_is_charged_at_its_end(memory: Memory) -> None:
    chat_id, run_id = await memory.begin()
    usage = common_pb2.Usage(input_tokens=10, output_tokens=4, model_calls=2, cost_usd=0.05)
    await memory.append(chat_id, run_id, step_line(content("hi")))
    await memory.append(chat_id, run_id, run_line(usage=usage))
    [row] = (await memory.usage(group_by=["agent", "model"])).rows
    assert (row.agent_key, row.model, to_sums(row)) == ("writer", "", (10, 4, 0, 2, 50_000_000))


async def test_spend_is_split_by_api_key_but_not_by_token(memory: Memory) -> None:
    for credential in ("api_key:0123456789ab", "api_key:ba9876543210", "jwt:one", "jwt:two"):
        chat_id, run_id = await memory.acting_as(Identity("acme", "ada", credential)).begin_with(said(charge()))
    with acting_as(Identity("acme", "ada")):
        rows = (await memory.usage(group_by=["key"])).rows
        assert await total(memory, key="api_key:ba9876543210") == 1_500
        # The run stays with its first credential when another one continues it.
        await memory.append(chat_id, run_id, said(charge(nano_usd=1)))
        assert [(row.key, row.cost_nano_usd) for row in rows] == [
            ("", 3_000),
            ("api_key:0123456789ab", 1_500),
            ("api_key:ba9876543210", 1_500),
        ]


async def test_users_see_their_own_spend_and_operators_that_of_their_tenant(memory: Memory) -> None:
    ada, bob, eve = Identity("acme", "ada"), Identity("acme", "bob"), Identity("other", "ada")
    for nano_usd, user in enumerate((ada, bob, eve), 1):
        with acting_as(user):
            await memory.begin_with(said(charge(nano_usd=10**nano_usd)))
            assert await total(memory) == 10**nano_usd
            for given in ({"scope": "tenant"}, {"scope": "tenant", "user": user.user}):
                with pytest.raises(PermissionDenied, match="no scope 'operate'"):
                    await memory.usage(**given)
            with pytest.raises(InvalidRequest, match="is for scope tenant"):
                await memory.usage(user="bob")
    with acting_as(Identity("acme", "eve", scopes=ALL_SCOPES)):
        assert await total(memory) == 0
        assert await total(memory, scope="tenant") == 110
        assert await total(memory, scope="tenant", user="bob") == 100
        rows = (await memory.usage(scope="tenant", group_by=["user"])).rows
        assert [(row.user, row.cost_nano_usd) for row in rows] == [("bob", 100), ("ada", 10)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"group_by": ["tenant"]},
        {"scope": "all"},
        {"from_day": "2026-13-01"},
        {"to_day": "0001-01-10"},
        {"to_day": "20261101"},
        {"from_day": "2026-11-02", "to_day": "2026-11-01"},
        {"from_day": "2025-01-01", "to_day": "2026-11-01"},
    ],
)
async def test_an_invalid_day_group_or_scope_is_rejected(memory: Memory, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        await memory.usage(**wrong)


async def test_a_charge_on_the_query_line_is_counted(memory: Memory) -> None:
    chat_id, run_id = new_id(), new_id()
    await memory.append(chat_id, run_id, charged(query_line(), charge()))
    await memory.append(chat_id, run_id, run_line(usage=NOTHING))
    assert await total(memory) == 1_500


async def test_charges_and_gates_of_one_append_are_stored_together(memory: Memory) -> None:
    chat_id, run_id = await memory.begin()
    await memory.append(chat_id, run_id, charged(opening("t_1"), charge()), charged(opening("t_2"), charge(nano_usd=1)))
    await memory.append(chat_id, run_id, charged(submitted("t_1"), charge(nano_usd=2)))
    assert [gate.gate_id for gate in (await memory.gates()).gates] == ["t_2"]
    assert await total(memory) == 1_503
