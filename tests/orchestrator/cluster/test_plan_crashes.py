"""A process dies in the middle of a plan, at any line of the log, and the next one goes on to the same end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ProviderAuthentication
from headrace.v1 import agent_pb2, llm_pb2, memory_pb2
from services.orchestrator.run.replay.replay import Recording
from tests.support.orchestrator import Serve, Step, content, plans, read, run_of
from tests.support.orchestrator.crashes import Crashes, assert_whole, restart, run_killed, run_whole
from tests.support.orchestrator.recorded_runs import World
from tests.support.order import TERMINAL, Event, fold
from tests.support.tiers import Take, at_places


def breaking() -> plans.Reply:
    """A model that breaks off in the middle of one of three tasks."""

    def work(request: llm_pb2.ChatRequest) -> list[Step]:
        if plans.task_of(request) == "part 1" and request.messages[-1].role == "tool":
            return [*content("half"), ProviderAuthentication("no key")]
        return plans.busy(request)

    tasks = ({"description": f"part {n}", "group": "a"} for n in range(3))
    return plans.model(plans.add(*tasks), work=work, planner=plans.busy_planner)


PLANS = [*((strategy, plans.busy_model()) for strategy in plans.STRATEGIES), ("PARALLEL", breaking())]


def known(events: list[Event]) -> dict[str, Any]:
    """What a reader knows in the end, apart from ids, and from the order in which parallel tasks speak."""
    folded = fold(events)
    said = [(block["kind"], block["text"], block.get("result", "")) for block in folded["blocks"].values()]
    words = [(kind, text, "" if "taskId" in result else result) for kind, text, result in said]
    tasks = sorted(event["type"] for event in events if event["type"] in ("task.start", "task.complete", "task.fail"))
    usage = {key: value for key, value in folded["end"]["usage"].items() if key in ("modelCalls", "toolCalls")}
    return {"said": sorted(words), "plan": plans.plan_of(events), "tasks": tasks, "end": folded["end"]["type"], **usage}


@at_places
@pytest.mark.parametrize("case", range(len(PLANS)))
async def test_a_plan_goes_on_after_the_process_has_died_at_any_line(
    serve: Serve, tmp_path: Path, case: int, take: Take
) -> None:
    strategy, reply = PLANS[case]
    async with serve(**plans.agent(strategy), budget={"maxModelCalls": 60}) as suite:
        await suite.stop()
        world, crashes = World(suite, [[]]), Crashes(suite)
        suite.llm.reply = reply
        alone, appends = await run_whole(suite, crashes)
        expected = known(alone)
        assert expected["end"] == "run.complete"
        for append in take(range(1, appends), case):
            seen = await run_killed(suite, crashes, append=append)
            run_id = run_of(seen)
            async with restart(suite) as client:
                whole = [*seen, *await read(client, run_id, seen[-1]["seq"])]
                assert [event["type"] for event in whole if event["type"] in TERMINAL] == [whole[-1]["type"]]
                assert known(whole) == expected, append
                for last_seq in range(0, len(whole), len(whole) // 5):
                    before = whole[:last_seq]
                    after = await read(client, run_id, before[-1]["seq"] if before else 0)
                    assert fold([*before, *after]) == fold(whole)
            log = (tmp_path / "data" / "chats" / f"{whole[0]['chatId']}.json").read_text()
            assert_whole([json.loads(line) for line in log.splitlines()], run_id)
        plans.check_pairs(suite)
        assert world.runs, "its tools were called"


def test_the_plan_that_readers_know_is_the_last_they_were_told_wherever_it_lies_in_the_log() -> None:
    def update(seq: int, task_id: str) -> agent_pb2.AgentDelta:
        plan = agent_pb2.PlanUpdate(plan_id="p", plan=[agent_pb2.Task(task_id=task_id)])
        return agent_pb2.AgentDelta(seq=seq, plan_update=plan)

    events = [update(3, "a"), update(9, "c"), update(7, "b")]
    lines = [memory_pb2.LogLine(event=memory_pb2.EventLine(event=event)) for event in events]
    plan = Recording(lines).scope(None).take_plan()
    assert plan is not None
    assert [task.task_id for task in plan] == ["c"]
