"""A gate is passed on, or its requester is asked, while it stays open: each step is in the log, with who took it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from headrace.errors import HeadraceError, InvalidRequest
from headrace.v1 import tools_pb2
from services.runtime.clock import now_ms
from tests.support.orchestrator import Serve, only, two_replicas
from tests.support.orchestrator.answerers import (
    ACCEPTED,
    DENIED,
    FINANCE,
    KEYS,
    LISTED,
    SILENT,
    Asked,
    as_user,
    asking,
    delegate,
    offer,
    try_answer,
)
from tests.support.orchestrator.crashes import Crashes
from tests.support.orchestrator.steps import ANSWER


async def ask_back(address: str, name: str, gate: tuple[str, str], note: str, **fields: Any) -> str:
    async with as_user(address, name) as client:
        try:
            return await client.ask_back(*gate, note, **fields)
        except HeadraceError as error:
            return error.reason


@pytest.mark.parametrize("kind", ["approval", "form"])
async def test_those_whom_a_gate_is_passed_to_find_and_answer_it(kind: str, serve: Serve) -> None:
    async with serve(asking(kind), ANSWER, keys=KEYS, **LISTED) as suite, asyncio.TaskGroup() as group:
        offer(suite, FINANCE, kind)
        asked = Asked()
        run = group.create_task(asked.follow(suite.client))
        gate = await asked.gate
        assert await delegate(suite.address, "cleo", gate, "user:cleo") == SILENT
        assert await delegate(suite.address, "ada", gate, "user:cleo") == DENIED
        assert await delegate(suite.address, "reader", gate, "user:cleo") == DENIED
        assert await delegate(suite.address, "bob", gate, "user:ada") == "INVALID_REQUEST"
        for wrong in (["tenant"], ["cleo"], [], ["user:a"] * 17):
            async with as_user(suite.address, "bob") as client:
                with pytest.raises(InvalidRequest, match="to: must"):
                    await client.delegate_gate(*gate, wrong)
        assert await try_answer(suite.address, "cleo", gate) == SILENT
        for _ in range(2):  # once, however often it is repeated
            assert await delegate(suite.address, "bob", gate, "user:cleo", note="away", request_id="r1") == "delegated"
        # To a role that the requester has: four eyes holds.
        assert await delegate(suite.address, "cleo", gate, "role:board") == "delegated"
        assert await try_answer(suite.address, "ada", gate) == DENIED
        async with as_user(suite.address, "cleo") as client:
            [listed] = (await client.gates()).gates
            assert [*listed.answerers.any_of] == ["role:finance", "user:cleo", "role:board"]
            seen = await client.gate(*gate)
        assert [(step.step, step.by, [*step.to], step.note) for step in seen.steps] == [
            ("delegated", "bob", ["user:cleo"], "away"),
            ("delegated", "cleo", ["role:board"], ""),
        ]
        assert await try_answer(suite.address, "cleo", gate) == ACCEPTED
        events = await run
        assert await delegate(suite.address, "bob", gate, "user:cleo") == "closed"
    assert only(events, "request.submit")["by"] == "cleo"
    assert events[-1]["type"] == "run.complete"


async def test_the_requester_is_asked_and_replies_while_the_gate_stays_open(serve: Serve) -> None:
    async with serve(asking("approval"), ANSWER, keys=KEYS, **LISTED) as suite, asyncio.TaskGroup() as group:
        offer(suite, FINANCE)
        asked = Asked()
        run = group.create_task(asked.follow(suite.client))
        gate = await asked.gate
        assert await ask_back(suite.address, "cleo", gate, "what for?") == SILENT
        assert await ask_back(suite.address, "bob", gate, "") == "INVALID_REQUEST"
        assert await ask_back(suite.address, "bob", gate, "x" * 4001) == "INVALID_REQUEST"
        assert await ask_back(suite.address, "bob", gate, "what for?", request_id="r1") == "asked_back"
        assert await ask_back(suite.address, "bob", gate, "what for?", request_id="r1") == "asked_back"
        assert await ask_back(suite.address, "ada", gate, "the mill") == "asked_back"
        async with as_user(suite.address, "bob") as client:
            seen = await client.gate(*gate)
        assert seen.state == "open"
        assert seen.opened_at <= seen.steps[0].at <= seen.steps[1].at <= now_ms()
        assert [(step.step, step.by, step.note) for step in seen.steps] == [
            ("asked_back", "bob", "what for?"),
            ("asked_back", "ada", "the mill"),
        ]
        assert await try_answer(suite.address, "bob", gate) == ACCEPTED
        events = await run
    steps = [event for event in events if event["type"] == "gate.step"]
    assert [(step["by"], step["credential"][:8]) for step in steps] == [("bob", "api_key:"), ("ada", "api_key:")]


async def test_a_delegation_holds_at_other_replicas_and_when_the_owner_is_killed(serve: Serve) -> None:
    async with serve(asking("approval"), ANSWER, keys=KEYS, **LISTED) as suite, two_replicas(suite) as (a, b):
        offer(suite, FINANCE)
        suite.tools.effects = [tools_pb2.CheckEffectResponse(state="not_done")]
        crashes, asked = Crashes(suite), Asked()
        async with as_user(a.address, "ada") as ada:
            run = asyncio.create_task(asked.follow(ada))
            gate = await asked.gate
            assert await delegate(b.address, "bob", gate, "user:cleo", request_id="r1") == "delegated"
            crashes.kill(gate[0])
            await a.stop()
            with suppress(HeadraceError):
                await run
        assert await delegate(b.address, "bob", gate, "user:cleo", request_id="r1") == "delegated"
        assert await try_answer(b.address, "ada", gate) == DENIED
        assert await try_answer(b.address, "cleo", gate) == ACCEPTED
        async with as_user(b.address, "ada") as ada, ada.attach(gate[0], 0) as deltas:
            events = [delta async for delta in deltas]
    assert events[-1].HasField("run_complete")
    assert len([delta for delta in events if delta.HasField("gate_step")]) == 1
    assert len(suite.tools.requests) == 1
