"""The end of a gate that memory does not take at once, in a sub-agent, whose end would not be its run's."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from headrace.errors import ProviderUnavailable
from headrace.v1 import memory_pb2
from tests.orchestrator.calls.test_answerers import ACCEPTED, KEYS, LISTED, Asked, asking, offer, only, try_answer
from tests.orchestrator.conftest import Open, finish
from tests.orchestrator.modes.test_subagents import HELPER, PARENT, delegated, replying, said


@pytest.mark.parametrize("line", ["gate_open", "gate_close"])
@pytest.mark.parametrize("kind", ["approval", "form"])
async def test_a_sub_agents_gate_outlasts_a_memory_that_takes_nothing(
    kind: str, line: str, house: Open, tmp_path: Path
) -> None:
    """Seed 7826 of tests/simulation: the opening of a sub-agent that had failed meanwhile was stored in the end."""
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "helper.json").write_text(json.dumps(HELPER | LISTED))
    refusals = 0
    async with house(keys=KEYS, **PARENT) as it, asyncio.TaskGroup() as group:

        async def refuse_twice(request: memory_pb2.AppendRequest) -> None:
            nonlocal refusals
            if any(one.event.event.WhichOneof("payload") == line for one in request.lines) and refusals < 2:
                refusals += 1
                raise ProviderUnavailable("the database is away")

        it.memory.before = refuse_twice
        offer(it, {"any_of": ["role:finance"]}, kind)
        replying(
            it,
            hello=[delegated(agentKey="helper") + finish("tool_calls"), said("done")],
            find=[asking(kind), said("it is here")],
        )
        asked = Asked()
        run = group.create_task(asked.follow(it.client))
        gate = await asked.gate
        assert await try_answer(it.address, "bob", gate) == ACCEPTED
        events = await run
    assert refusals == 2
    assert only(events, "gate.close")["state"] == "answered"
    assert only(events, "subagent.end")["ok"], "and its answer is not lost"
    assert events[-1]["type"] == "run.complete"
