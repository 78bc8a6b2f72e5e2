"""The tools service goes away in the middle of a call: which calls run again, and what the user is asked and shown."""

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


def make_result(text: str) -> tools_pb2.ToolDelta:
    return tools_pb2.ToolDelta(result=tools_pb2.ToolOutcome(ok=True, result=text))


def make_effect(word: str, result: str = "") -> tools_pb2.CheckEffectResponse:
    outcome = tools_pb2.ToolOutcome(ok=True, result=result) if result else None
    return tools_pb2.CheckEffectResponse(state=word, result=outcome)


def offer(suite: Suite, effect: str, *plays: list[ToolStep]) -> None:
    suite.tools.tools.append(tool("act", "backend", effect=effect))
    suite.tools.plays["act"] = list(plays)


CUTS: list[list[ToolStep]] = [[BREAK], [OUTPUT, BREAK], [OUTPUT, OUTPUT, 0.05, BREAK]]
"""The stream breaks before anything, within the output, or before the result."""


def keys(suite: Suite) -> list[str]:
    return [request.effect_key for request in suite.tools.requests]


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("effect", ["read", "idempotent"])
async def test_a_repeatable_call_is_retried_with_the_same_key(serve: Serve, effect: str, cut: list[ToolStep]) -> None:
    async with serve(ACT, ANSWER, **LISTED) as suite:
        offer(suite, effect, cut, cut, [OUTPUT, make_result("acted")])
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
        ([make_effect("done", "acted before")], 1, "acted before"),
        ([make_effect("not_done")], 2, "acted"),
        ([make_effect("unknown"), make_effect("done", "acted at last")], 1, "acted at last"),
        ([make_effect("unknown"), make_effect("not_done")], 2, "acted"),
    ],
)
async def test_a_call_with_effect_once_is_checked_before_it_is_retried(
    serve: Serve, effects: list[tools_pb2.CheckEffectResponse], runs: int, result: str, cut: list[ToolStep]
) -> None:
    async with serve(ACT, ANSWER, **LISTED) as suite:
        offer(suite, "once", cut, [OUTPUT, make_result("acted")])
        suite.tools.effects = effects
        events = await ask(suite)
        assert last_result(suite) == result
        assert len(keys(suite)) == runs
        assert set(suite.tools.checked) == set(keys(suite))
    assert "run.notice" not in kinds(events, "run.")


async def test_a_check_refused_by_a_full_disk_is_retried(serve: Serve) -> None:
    replies = [make_effect("not_done"), Overloaded("the disk refused the record of a call; try again later")]

    def check(key: str) -> tools_pb2.CheckEffectResponse:
        reply = replies.pop()
        if isinstance(reply, Overloaded):
            raise reply
        return reply

    async with serve(ACT, ANSWER, **LISTED) as suite:
        offer(suite, "once", [BREAK], [OUTPUT, make_result("acted")])
        suite.tools.check = check
        await ask(suite)
        assert last_result(suite) == "acted"
    assert replies == []


async def run_without_readers(suite: Suite) -> list[Event]:
    """Start a run that nobody reads; return its events from the log."""
    await ask_until(suite.client, "tool.end", agent_key="react", chat_id=CHAT)
    await wait_for_ends(suite)
    return [as_json(event) for event in (await suite.client.chat(CHAT)).events]


async def test_an_unknown_outcome_is_reported_to_user_and_model(serve: Serve) -> None:
    async with serve(ACT, ANSWER, **LISTED) as suite:
        offer(suite, "once", [0.2, BREAK])
        events = await run_without_readers(suite)
        assert len(keys(suite)) == 1
        assert len(suite.tools.checked) == 3
        assert json.loads(last_result(suite))["error"] == "unknown"
    assert only(events, "run.notice")["code"] == "OUTCOME_UNKNOWN"
    assert kinds(events, "approval") == []
    assert events[-1]["type"] == "run.complete"


async def test_an_attending_user_may_rerun_an_unknown_call_with_a_new_key(serve: Serve) -> None:
    async with serve(ACT, ANSWER, **LISTED) as suite:
        offer(suite, "once", [BREAK], [make_result("acted")])
        events = await ask(suite, ("approval.ask", submits(suite, {"decision": "approve"})))
        assert last_result(suite) == "acted"
        assert len(set(keys(suite))) == 2
    assert only(events, "run.notice")["code"] == "OUTCOME_UNKNOWN"
    assert only(events, "approval.ask")["risk"] == "high"


async def test_an_attending_user_may_leave_an_unknown_call_unrepeated(serve: Serve) -> None:
    async with serve(ACT, ANSWER, **LISTED) as suite:
        offer(suite, "once", [BREAK], [make_result("acted")])
        await ask(suite, ("approval.ask", submits(suite, {"decision": "reject"})))
        assert json.loads(last_result(suite))["error"] == "unknown"
        assert len(keys(suite)) == 1


async def test_retries_of_an_unreachable_tools_service_end_at_the_tool_timeout(serve: Serve) -> None:
    # Tries come after 0.1, 0.3, 0.7 and 1.5 s: time enough for a second one on a machine that is busy.
    async with serve(ACT, ANSWER, budget={"toolTimeoutMs": 3000}, **LISTED) as suite:
        offer(suite, "read", [BREAK])
        await ask(suite)
        assert json.loads(last_result(suite))["error"] == "PROVIDER_UNAVAILABLE"
        assert 2 <= len(keys(suite)) <= 5


@pytest.mark.parametrize("error", [ProviderUnavailable("the search engine is away"), NotFound("x")])
async def test_an_error_of_the_tool_itself_is_a_result_without_retry(serve: Serve, error: Any) -> None:
    async with serve(ACT, ANSWER, **LISTED) as suite:
        offer(suite, "read", [error])
        await ask(suite)
        assert json.loads(last_result(suite))["error"] == error.reason
        assert len(keys(suite)) == 1


async def test_a_call_refused_as_running_or_overloaded_is_retried(serve: Serve) -> None:
    async with serve(ACT, ANSWER, **LISTED) as suite:
        refusals: list[list[ToolStep]] = [[Overloaded("this very call is running")], [Overloaded("full")]]
        offer(suite, "once", [OUTPUT, BREAK], *refusals, [make_result("acted")])
        suite.tools.effects = [make_effect("not_done")]
        await ask(suite)
        assert last_result(suite) == "acted"
        assert len(keys(suite)) == 4
        assert len(set(keys(suite))) == 1


async def test_a_cancel_while_the_tools_service_is_away_ends_the_run_at_once(serve: Serve) -> None:
    async with serve(ACT, ANSWER, **LISTED) as suite:
        offer(suite, "read", [OUTPUT, BREAK])
        events = await ask(suite, ("tool.output", cancels(suite)))
        assert events[-1]["type"] == "run.cancel"
        assert (await ask(suite))[-1]["type"] == "run.complete"
