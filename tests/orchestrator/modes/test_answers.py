"""The answer of a run is what its last stage says, however much its planner talks: live, attached to, in history, and
for the model of the next run.
"""

from __future__ import annotations

import json
import re

import pytest

from headrace.fold import Fold, fold_events
from headrace.v1 import agent_pb2, llm_pb2
from tests.support.orchestrator import MODEL, Serve, Step, Suite, answer, call, content, finish, plans
from tests.support.orchestrator.plans import STRATEGIES, Reply, add, last_text, model, text_of

ANSWER = "the answer"

DRAFT = answer("First I think.")


def plan_aloud(request: llm_pb2.ChatRequest) -> list[Step]:
    """What a planner says that comments all that it does."""
    if request.tool_choice == "auto":
        return answer("Nothing more is needed.")
    if "has ended" in last_text(request):
        return answer("finish")
    return [*content("I plan."), *add("look")]


def reply_aloud(*, deep: bool = False) -> Reply:
    return model(DRAFT if deep else [*content("I plan."), *add("look")], planner=plan_aloud)


async def ask(suite: Suite) -> tuple[str, Fold]:
    async with suite.client.ask("hello", agent_key="react", chat_id=suite.chat_id or None) as deltas:
        state = fold_events([delta async for delta in deltas])
    assert state.end is not None
    assert state.end.HasField("run_complete")
    suite.chat_id = state.chat_id
    return state.run_id, state


async def read_back(suite: Suite, run_id: str) -> list[list[agent_pb2.AgentDelta]]:
    """The run's events as they are given to one who comes later: from the log, and in the chat's history."""
    async with suite.client.attach(run_id) as deltas:
        attached = [delta async for delta in deltas]
    return [attached, list((await suite.client.chat(suite.chat_id)).events)]


def list_stages(deltas: list[agent_pb2.AgentDelta]) -> list[tuple[str, bool]]:
    """Stage of each text, and whether it is the answer, where its event says so."""
    found: list[tuple[str, bool]] = []
    for delta in deltas:
        if (kind := delta.WhichOneof("payload")) in ("content_start", "content_snapshot"):
            payload = getattr(delta, kind)
            assert payload.HasField("is_answer")
            found.append((payload.stage, payload.is_answer))
    return found


@pytest.mark.parametrize("deep", [False, True], ids=["", "deep"])
@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_what_a_planner_says_is_no_part_of_the_answer(serve: Serve, strategy: str, deep: bool) -> None:
    async with serve(**plans.agent(strategy, deep=deep), budget={"maxModelCalls": 60}) as suite:
        suite.llm.reply = reply_aloud(deep=deep)
        async with suite.client.ask("hello", agent_key="react") as deltas:
            live = [delta async for delta in deltas]
        state = fold_events(live)
        suite.chat_id = state.chat_id
        assert state.answer == ANSWER
        stages = list_stages(live)
        assert stages[-1] == ("summary", True)
        assert set(stages[:-1]) == {("plan", False), ("execute", False)}
        for later in await read_back(suite, state.run_id):
            assert fold_events(later).answer == ANSWER
            assert list_stages(later) == stages
        suite.llm.requests.clear()
        await ask(suite)
        shown = [text_of(message) for message in suite.llm.requests[0].messages[1:]]
        assert shown[1:] == [ANSWER, "hello"]
        assert re.fullmatch(r"hello\n\n\[Lines 2-\d+ of this chat are left out here, .*\]", shown[0])


async def test_a_sub_agent_that_plans_returns_its_summary(serve: Serve) -> None:
    turns = {"count": 0}

    def reply(request: llm_pb2.ChatRequest) -> list[Step]:
        if request.stage != "react":
            return reply_aloud()(request)
        turns["count"] += 1
        if turns["count"] > 1:
            return answer("told")
        arguments = json.dumps({"agentKey": "planner", "task": "hello"})
        return [*content("I ask."), *call("call_subagent", arguments), *finish("tool_calls")]

    planner = plans.agent("PARALLEL") | {"modelConfig": MODEL}
    async with serve(subagents=["planner"], beside={"planner": planner}) as suite:
        suite.llm.reply = reply
        run_id, state = await ask(suite)
        assert state.answer == "told"
        [result] = [json.loads(block.result or "") for block in state.blocks.values() if block.name == "call_subagent"]
        assert result["result"] == ANSWER
        for later in await read_back(suite, run_id):
            told = fold_events(later)
            assert told.answer == "told"
            assert [block.text for block in told.blocks.values() if block.is_answer] == ["I ask.", "told"]
