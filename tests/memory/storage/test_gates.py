"""Gates in the index: which lines open and close them, pages, filters and permissions; and the audit of gates: each
step in the logs, in order, without content unless it is requested. On both engines.
"""

import json
from typing import Any

import pytest

from headrace.errors import InvalidRequest, NotFound, PermissionDenied
from headrace.hash_chain import verify_lines
from headrace.v1 import agent_pb2, common_pb2, memory_pb2
from services.runtime.auth.identity import Identity, acting_as
from services.runtime.clock import now_ms
from tests.support.memory.engines import Serve
from tests.support.memory.gates import AT, approval, closing, granting, ids, opening, step, submitted
from tests.support.memory.messages import call
from tests.support.memory.writing import Memory, event_line, read_pages, run_line, step_line

pytestmark = pytest.mark.engines


@pytest.mark.engines("encrypted postgres")
async def test_a_gate_is_open_from_its_line_until_it_is_answered(serve: Serve) -> None:
    async with serve() as memory:
        chat_id, run_id = await memory.begin_with(approval("approval_1", "high"))
        [gate] = (await memory.gates()).gates
        assert gate == await memory.gate(run_id, "approval_1")
        assert (gate.run_id, gate.chat_id, gate.agent_key, gate.requester) == (run_id, chat_id, "clerk", "default")
        assert (gate.kind, gate.state, gate.tool_id, gate.tool_name) == ("approval", "open", "call_1", "pay")
        assert (gate.risk, gate.reason.replace("\0", ""), gate.HasField("viewport_key")) == ("high", "itcosts", False)
        assert (gate.opened_at, gate.expires_at, gate.HasField("closed_at")) == (AT, AT + 1000, False)
        await memory.append(chat_id, run_id, submitted("approval_1"))
        # The submit alone decides; later lines change nothing.
        await memory.append(chat_id, run_id, closing("approval_1", "expired"))
        await memory.append(chat_id, run_id, run_line())
    async with serve() as memory:
        assert await ids(memory) == []
        gate = await memory.gate(run_id, "approval_1")
        assert (gate.state, gate.answered_by, gate.credential) == ("answered", "ada", "api_key:0123456789ab")
        assert gate.closed_at == AT + 7


@pytest.mark.parametrize("together", [True, False])
async def test_the_first_end_of_a_gate_counts_even_within_one_write(memory: Memory, together: bool) -> None:
    chat_id, run_id = await memory.begin_with(opening("t_0"), opening("t_1"), opening("t_2"))
    lines = [opening("t_3"), submitted("t_0"), closing("t_1", "expired"), submitted("t_3"), run_line("cancelled")]
    for some in [lines] if together else [[line] for line in lines]:
        await memory.append(chat_id, run_id, *some)
    states = {gate_id: (await memory.gate(run_id, gate_id)).state for gate_id in ("t_0", "t_1", "t_2", "t_3")}
    assert states == {"t_0": "answered", "t_1": "expired", "t_2": "cancelled", "t_3": "answered"}
    assert await ids(memory) == []


@pytest.mark.parametrize("together", [True, False])
async def test_votes_and_delegations_are_stored_in_the_index(serve: Serve, together: bool) -> None:
    rule = common_pb2.Answerers(any_of=["role:finance"], count=3)
    lines = [
        *(step("t_1", "vote", by, decision="approve") for by in ("ada", "bob")),
        step("t_1", "vote", "cleo", decision="edit", arguments="{}"),
        step("t_1", "vote", "ada", decision="approve"),
        step("t_1", "delegated", "ada", to=["user:dora"]),
        step("t_1", "asked_back", "ada", to=["user:nobody"]),
        run_line("cancelled"),
    ]
    async with serve() as memory:
        chat_id, run_id = await memory.begin_with(opening("t_1", answerers=rule))
        for some in [lines] if together else [[line] for line in lines]:
            await memory.append(chat_id, run_id, *some)
        gate = await memory.gate(run_id, "t_1")
        assert [*gate.voters] == ["cleo", "ada"]
        assert ([*gate.answerers.any_of], gate.answerers.count) == (["role:finance", "user:dora"], 3)
        assert gate.state == "cancelled"
    async with serve() as memory:
        assert gate == await memory.gate(run_id, "t_1")


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("opened_before", [True, False])
async def test_a_step_after_the_end_of_a_gate_changes_nothing(
    serve: Serve, *, together: bool, opened_before: bool
) -> None:
    lines = [
        opening("t_1"),
        claim_step("t_1", "claimed", AT + 600_000),
        submitted("t_1"),
        step("t_1", "vote", "bob", decision="approve"),
        step("t_1", "delegated", "bob", to=["user:dora"]),
        claim_step("t_1", "released"),
    ]
    async with serve() as memory:
        chat_id, run_id = await memory.begin()
        if opened_before:
            await memory.append(chat_id, run_id, lines.pop(0))
        for some in [lines] if together else [[line] for line in lines]:
            await memory.append(chat_id, run_id, *some)
        gate = await memory.gate(run_id, "t_1")
        assert (gate.state, [*gate.voters], [*gate.answerers.any_of]) == ("answered", [], ["user:default"])
    async with serve() as memory:
        assert gate == await memory.gate(run_id, "t_1")


async def test_a_submit_without_an_open_gate_creates_no_gate(memory: Memory) -> None:
    chat_id, run_id = await memory.begin_with(submitted("t_1"))
    await memory.append(chat_id, run_id, opening("t_2"))
    assert await ids(memory) == ["t_2"]
    with pytest.raises(NotFound, match="no gate 't_1'"):
        await memory.gate(run_id, "t_1")


async def test_gates_are_listed_by_page_and_filter(memory: Memory) -> None:
    chat_id, run_id = await memory.begin()
    risks = ["high", "low", "high", "medium", "high"]
    lines = [approval(f"approval_{index}", risk, AT + index // 2) for index, risk in enumerate(risks)]
    await memory.append(chat_id, run_id, *lines, opening("t_1", AT + 9, kind="question", agent_key="guide"))
    everything = [*(f"approval_{index}" for index in range(5)), "t_1"]
    found = [gate.gate_id for page in await read_pages(memory, "ListGates", "gates", 2) for gate in page]
    assert found == await ids(memory) == everything
    assert await ids(memory, risk="high") == ["approval_0", "approval_2", "approval_4"]
    assert await ids(memory, kind="question") == await ids(memory, agent_key="guide") == ["t_1"]
    assert await ids(memory, kind="form") == await ids(memory, agent_key="nobody") == []
    assert await ids(memory, older_than_ms=0) == everything
    assert await ids(memory, older_than_ms=10**15) == []
    for wrong in ({"page_token": "x"}, {"page_size": 201}, {"page_size": -1}):
        with pytest.raises(InvalidRequest):
            await memory.gates(**wrong)


async def test_gates_are_deleted_with_their_chat_and_survive_a_revert(memory: Memory) -> None:
    chat_id, run_id = await memory.begin_with(opening("t_1"), submitted("t_1"), run_line())
    await memory.revert(chat_id, 0)
    assert (await memory.gate(run_id, "t_1")).answered_by == "ada"
    _, later = await memory.begin_with(opening("t_1"), chat_id=chat_id)
    assert [gate.run_id for gate in (await memory.gates()).gates] == [later]
    await memory.append(chat_id, later, run_line())
    with pytest.raises(NotFound):
        await memory.gate(run_id, "t_2")
    await memory.call_as(Identity("default", "default"), "DeleteChat", chat_id=chat_id)
    with pytest.raises(NotFound):
        await memory.gate(run_id, "t_1")


async def test_a_gate_is_visible_only_to_its_requester(memory: Memory) -> None:
    ada, bob, eve = Identity("acme", "ada"), Identity("acme", "bob"), Identity("other", "ada")
    with acting_as(ada):
        _, run_id = await memory.begin_with(opening("t_1"))
        assert await ids(memory) == await ids(memory, scope="own") == ["t_1"]
    for other in (bob, eve):
        with acting_as(other):
            assert await ids(memory) == []
            with pytest.raises(NotFound, match=f"run {run_id} has no gate 't_1'"):
                await memory.gate(run_id, "t_1")


def claim_step(gate_id: str, name: str, until: int | None = None, at: int = AT + 3) -> memory_pb2.LogLine:
    gate_step = agent_pb2.GateStep(gate_id=gate_id, step=name, by="ada", holder="tab", until=until)
    return event_line(seq=6, timestamp=at, gate_step=gate_step)


@pytest.mark.parametrize("together", [True, False])
async def test_a_claim_is_shown_until_it_expires_or_is_released(memory: Memory, together: bool) -> None:
    later = now_ms() + 3_600_000
    chat_id, run_id = await memory.begin()
    lines = [
        *(opening(gate_id) for gate_id in ("held", "over", "released", "taken", "done")),
        *(claim_step(gate_id, "claimed", later) for gate_id in ("held", "released", "taken", "done")),
        claim_step("over", "claimed", AT + 4),
        claim_step("released", "released"),
        claim_step("taken", "released"),
        claim_step("taken", "claimed", later + 1),
        claim_step("held", "vote"),
        submitted("done"),
    ]
    for some in [lines] if together else [lines[:5], *([line] for line in lines[5:])]:
        await memory.append(chat_id, run_id, *some)
    claims = {gate.gate_id: (gate.claimed_by, gate.claimed_until) for gate in (await memory.gates()).gates}
    nobody = ("", 0)
    expected = {"held": ("ada", later), "over": nobody, "released": nobody, "taken": ("ada", later + 1)}
    assert claims == expected
    answered_gate = await memory.gate(run_id, "done")
    assert (answered_gate.state, answered_gate.claimed_by) == ("answered", "")


ADA = Identity("acme", "ada", "api_key:a", scopes=frozenset({"answer"}))


OLGA = Identity("acme", "olga", "api_key:o", scopes=frozenset({"operate"}))


OTTO = Identity("acme", "otto", "api_key:t", scopes=frozenset({"operate", "read_content"}))


STRANGER = Identity("globex", "eve", scopes=frozenset({"operate", "read_content"}))


SECRET = "12345678901234567890.50"


PAYLOAD = '{"decision": "approve", "note": "quietly", "grant": "chat", "grantMs": 60000}'


async def export(memory: Memory, **fields: Any) -> list[dict[str, Any]]:
    lines = await memory.export_gates(**fields)
    assert not verify_lines(lines).problem
    begin, *records, end = map(json.loads, lines)
    assert (begin["step"], end["count"]) == ("begin", len(records))
    return records


def list_steps(records: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(record["step"], record.get("gateId") or record["grantId"]) for record in records]


async def write_chat(memory: Memory) -> tuple[str, str]:
    """Hold a run that has each step of a gate."""
    chat_id, run_id = await memory.begin()
    submit = agent_pb2.RequestSubmit(tool_id="approval_1", payload=PAYLOAD, by="bob", credential="api_key:b")
    grant_use = agent_pb2.GrantUse(grant_id="g_1", tool_id="call_2", tool_name="pay", grounds=["medium risk: it"])
    unrelated = agent_pb2.RequestSubmit(tool_id="of_a_program", payload="{}", by="bob")
    for line in (
        step_line(call("call_1", f'{{"amount": {SECRET}}}')),
        approval("approval_1", "medium"),
        step("approval_1", "claimed", "bob", holder="tab", until=9),
        step("approval_1", "asked_back", "bob", note="quietly"),
        step("approval_1", "delegated", "bob", to=["user:cleo"]),
        step("approval_1", "reminded"),
        step("approval_1", "escalated", to=["role:board"]),
        step("approval_1", "vote", "cleo", decision="approve", grant="chat", grant_ms=60_000, note="quietly"),
        event_line(seq=8, timestamp=1, request_submit=unrelated),
    ):
        await memory.append(chat_id, run_id, line)
    await memory.append(chat_id, run_id, event_line(seq=9, timestamp=1, request_submit=submit), granting("g_1"))
    await memory.append(chat_id, run_id, closing("approval_1", "answered"), opening("t_1"), opening("t_2"))
    await memory.append(
        chat_id, run_id, closing("t_1", "expired"), event_line(seq=10, timestamp=1, grant_use=grant_use)
    )
    await memory.append(chat_id, run_id, run_line("failed"))
    await memory.revoke_grant(chat_id, "g_1")
    return chat_id, run_id


STEPS = [
    *[(name, "approval_1") for name in ("asked", "claimed", "asked_back", "delegated", "reminded", "escalated")],
    *[("voted", "approval_1"), ("answered", "approval_1"), ("granted", "approval_1")],
    *[
        ("asked", "t_1"),
        ("asked", "t_2"),
        ("expired", "t_1"),
        ("used", "g_1"),
        ("cancelled", "t_2"),
        ("revoked", "g_1"),
    ],
]


async def test_each_step_is_exported_with_its_author_and_without_content(memory: Memory) -> None:
    with acting_as(ADA):
        chat_id, run_id = await write_chat(memory)
        lines = await memory.export_gates(chat_id=chat_id)
        records = await export(memory, chat_id=chat_id)
        with pytest.raises(PermissionDenied, match="read_content"):
            await memory.export_gates(chat_id=chat_id, with_content=True)
    assert list_steps(records) == STEPS
    assert SECRET not in "".join(lines)
    assert "quietly" not in "".join(lines)
    asked, voted, answered, granted, revoked = (records[at] for at in (0, 6, 7, 8, -1))
    assert (asked["chatId"], asked["runId"], asked["n"], asked["toolName"]) == (chat_id, run_id, 3, "pay")
    assert (voted["by"], voted["decision"], voted["grant"]) == ("cleo", "approve", "chat")
    answer_fields = (answered["by"], answered["credential"], answered["decision"], answered["grant"])
    assert answer_fields == ("bob", "api_key:b", "approve", "chat")
    assert (granted["grantId"], granted["scope"], granted["madeBy"]) == ("g_1", "chat", ["bob"])
    assert (revoked["by"], revoked["credential"]) == ("ada", "api_key:a")
    with acting_as(OTTO):
        records = await export(memory, chat_id=chat_id, with_content=True)
    assert list_steps(records) == STEPS
    assert records[0]["arguments"] == f'{{"amount": {SECRET}}}'
    assert [record["note"] for record in records if "note" in record] == ["quietly", "quietly"]
    assert records[7]["payload"] == PAYLOAD


async def test_an_export_of_a_period_contains_only_what_the_caller_may_see(memory: Memory) -> None:
    with acting_as(STRANGER):
        await write_chat(memory)
    with acting_as(ADA):
        first, _ = await write_chat(memory)
        second, _ = await write_chat(memory)
        with pytest.raises(PermissionDenied, match="operate"):
            await memory.export_gates()
    with acting_as(OLGA):
        records = await export(memory)
        assert {record["chatId"] for record in records} == {first, second}
        assert [record["at"] for record in records] == sorted(record["at"] for record in records)
        assert list_steps([record for record in records if record["chatId"] == second]) == STEPS
        middle = records[len(records) // 2]["at"]
        halves = [*await export(memory, before=middle), *await export(memory, since=middle)]
        assert list_steps(halves) == list_steps(records)
        assert await export(memory, since=records[-1]["at"] + 1) == []
        with pytest.raises(InvalidRequest, match="since: must not be negative"):
            await memory.export_gates(since=-1)
    for caller in (STRANGER, Identity("acme", "bob")):
        with acting_as(caller), pytest.raises(NotFound):
            await memory.export_gates(chat_id=first)
