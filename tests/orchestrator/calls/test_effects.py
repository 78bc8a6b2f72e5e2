"""The tools service goes away in the middle of a call: what runs again, what is asked about, and what the user sees."""

import json
from typing import Any

import pytest

from headrace.errors import NotFound, Overloaded, ProviderUnavailable
from headrace.v1 import tools_pb2
from tests.support.orchestrator import CHAT, Serve, Suite, ask, cancels, last_result, submits, tool
from tests.support.orchestrator.events import as_json, ask_until, kinds, only
from tests.support.orchestrator.runs import read_recorded, wait_for_ends
from tests.support.orchestrator.steps import ANSWER, BREAK, ToolStep, call_tool
from tests.support.order import Event, fold

ACT = call_tool("act", '{"at":1}')
LISTED: dict[str, Any] = {"toolConfig": {"backends": ["act"]}}

OUTPUT = tools_pb2.ToolDelta(output=tools_pb2.ToolOutputDelta(stream="stdout", delta="working\n"))


def done(text: str) -> tools_pb2.ToolDelta:
    return tools_pb2.ToolDelta(result=tools_pb2.ToolOutcome(ok=True, result=text))


def state(word: str, result: str = "") -> tools_pb2.CheckEffectResponse:
    outcome = tools_pb2.ToolOutcome(ok=True, result=result) if result else None
    return tools_pb2.CheckEffectResponse(state=word, result=outcome)


def offer(suite: Suite, effect: str, *plays: list[ToolStep]) -> None:
    suite.tools.tools.append(tool("act", "backend", effect=effect))
    suite.tools.plays["act"] = list(plays)


CUTS: list[list[ToolStep]] = [[BREAK], [OUTPUT, BREAK], [OUTPUT, OUTPUT, 0.05, BREAK]]
"""Before anything, in the output, and before the result."""


def keys(suite: Suite) -> list[str]:
    return [request.effect_key for request in suite.tools.requests]


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("effect", ["read", "idempotent"])
async def test_what_may_run_again_does_with_the_same_key(serve: Serve, effect: str, cut: list[ToolStep]) -> None:
    async with serve(ACT, ANSWER, **LISTED) as suite:
        offer(suite, effect, cut, cut, [OUTPUT, done("acted")])
        events = await ask(suite)
        assert last_result(suite) == "acted"
        assert len(keys(suite)) == 3
        assert len(set(keys(suite))) == 1
        assert suite.tools.checked == []
        assert fold(await read_recorded(suite, suite.run_ids[0])) == fold(events)


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize(
    ("effects", "runs", "result"),
    [
        ([state("done", "acted before")], 1, "acted before"),
        ([state("not_done")], 2, "acted"),
        ([state("unknown"), state("done", "acted at last")], 1, "acted at last"),
        ([state("unknown"), state("not_done")], 2, "acted"),
    ],
)
async def test_once_asks_what_became_of_it(
    serve: Serve, effects: list[tools_pb2.CheckEffectResponse], runs: int, result: str, cut: list[ToolStep]
) -> None:
    async with serve(ACT, ANSWER, **LISTED) as suite:
        offer(suite, "once", cut, [OUTPUT, done("acted")])
        suite.tools.effects = effects
        events = await ask(suite)
        assert last_result(suite) == result
        assert len(keys(suite)) == runs
        assert set(suite.tools.checked) == set(keys(suite))
    assert "run.notice" not in kinds(events, "run.")


async def test_a_disk_that_refuses_the_records_is_asked_again(serve: Serve) -> None:
    replies = [state("not_done"), Overloaded("the disk refused the record of a call; try again later")]

    def check(key: str) -> tools_pb2.CheckEffectResponse:
        reply = replies.pop()
        if isinstance(reply, Overloaded):
            raise reply
        return reply

    async with serve(ACT, ANSWER, **LISTED) as suite:
        offer(suite, "once", [BREAK], [OUTPUT, done("acted")])
        suite.tools.check = check
        await ask(suite)
        assert last_result(suite) == "acted"
    assert replies == []


async def unattended(suite: Suite) -> list[Event]:
    """A run that nobody follows, as the log has it."""
    await ask_until(suite.client, "tool.end", agent_key="react", chat_id=CHAT)
    await wait_for_ends(suite)
    return [as_json(event) for event in (await suite.client.chat(CHAT)).events]


async def test_an_unknown_outcome_is_told_to_the_user_and_the_model(serve: Serve) -> None:
    async with serve(ACT, ANSWER, **LISTED) as suite:
        offer(suite, "once", [0.2, BREAK])
        events = await unattended(suite)
        assert len(keys(suite)) == 1
        assert len(suite.tools.checked) == 3
        assert json.loads(last_result(suite))["error"] == "unknown"
    assert only(events, "run.notice")["code"] == "OUTCOME_UNKNOWN"
    assert kinds(events, "approval") == []
    assert events[-1]["type"] == "run.complete"


async def test_a_user_who_is_there_may_have_it_run_again_as_another_effect(serve: Serve) -> None:
    async with serve(ACT, ANSWER, **LISTED) as suite:
        offer(suite, "once", [BREAK], [done("acted")])
        events = await ask(suite, ("approval.ask", submits(suite, {"decision": "approve"})))
        assert last_result(suite) == "acted"
        assert len(set(keys(suite))) == 2
    assert only(events, "run.notice")["code"] == "OUTCOME_UNKNOWN"
    assert only(events, "approval.ask")["risk"] == "high"


async def test_a_user_who_is_there_may_leave_it_at_that(serve: Serve) -> None:
    async with serve(ACT, ANSWER, **LISTED) as suite:
        offer(suite, "once", [BREAK], [done("acted")])
        await ask(suite, ("approval.ask", submits(suite, {"decision": "reject"})))
        assert json.loads(last_result(suite))["error"] == "unknown"
        assert len(keys(suite)) == 1


async def test_a_tools_service_that_stays_away_ends_the_tries_in_the_tools_time(serve: Serve) -> None:
    # Tries come after 0.1, 0.3, 0.7 and 1.5 s: time enough for a second one on a machine that is busy.
    async with serve(ACT, ANSWER, budget={"toolTimeoutMs": 3000}, **LISTED) as suite:
        offer(suite, "read", [BREAK])
        await ask(suite)
        assert json.loads(last_result(suite))["error"] == "PROVIDER_UNAVAILABLE"
        assert 2 <= len(keys(suite)) <= 5


@pytest.mark.parametrize("error", [ProviderUnavailable("the search engine is away"), NotFound("x")])
async def test_an_error_of_the_tools_own_is_a_result_at_once(serve: Serve, error: Any) -> None:
    async with serve(ACT, ANSWER, **LISTED) as suite:
        offer(suite, "read", [error])
        await ask(suite)
        assert json.loads(last_result(suite))["error"] == error.reason
        assert len(keys(suite)) == 1


async def test_a_call_that_is_still_running_or_finds_no_room_is_made_again(serve: Serve) -> None:
    async with serve(ACT, ANSWER, **LISTED) as suite:
        refusals: list[list[ToolStep]] = [[Overloaded("this very call is running")], [Overloaded("full")]]
        offer(suite, "once", [OUTPUT, BREAK], *refusals, [done("acted")])
        suite.tools.effects = [state("not_done")]
        await ask(suite)
        assert last_result(suite) == "acted"
        assert len(keys(suite)) == 4
        assert len(set(keys(suite))) == 1


async def test_a_cancel_while_the_service_is_away_ends_the_run_at_once(serve: Serve) -> None:
    async with serve(ACT, ANSWER, **LISTED) as suite:
        offer(suite, "read", [OUTPUT, BREAK])
        events = await ask(suite, ("tool.output", cancels(suite)))
        assert events[-1]["type"] == "run.cancel"
        assert (await ask(suite))[-1]["type"] == "run.complete"
