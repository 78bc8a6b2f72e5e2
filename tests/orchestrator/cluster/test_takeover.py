"""Takeovers: which process continues a run whose owner is gone, from which state, and when no process does."""

import asyncio
import json
import uuid
from typing import Any

import pytest

from headrace.errors import InvalidRequest, Overloaded, ProviderUnavailable
from headrace.v1 import llm_pb2, memory_pb2, tools_pb2
from tests.support.orchestrator import CHAT, Serve, Suite, as_json, ask, only, plans, read, replica, submit, tool
from tests.support.orchestrator.crashes import Crashes, read_rest, restart, run_until
from tests.support.orchestrator.events import ask_until, read_until, run_of
from tests.support.orchestrator.replicas import LEASE_S, two_replicas
from tests.support.orchestrator.requests import last_result
from tests.support.orchestrator.runs import unfinished_runs, wait_for_ends
from tests.support.orchestrator.steps import ANSWER, BREAK, Step, call, call_tool, content, finish
from tests.support.orchestrator.watched_memory import Refusal, pass_on
from tests.support.order import TERMINAL, Event, fold, texts

SLOW = [*content("Hel"), 3600.0]
LOOK = call_tool("look", '{"at":1}')


async def test_a_run_is_not_taken_over_while_its_lease_is_valid(serve: Serve) -> None:
    async with serve(SLOW, ANSWER) as suite:
        events_before = await run_until(suite, "content.delta")
        [before] = await unfinished_runs(suite)
        assert (before.owner, before.generation) == ("127.0.0.1:0", 0)
        async with restart(suite, "another") as client:
            attached = asyncio.create_task(read_rest(client, events_before))
            await asyncio.sleep(0.5)
            assert await unfinished_runs(suite) == [before]
            assert not attached.done(), "its owner may come back"
            await end_lease(suite, events_before)
            assert (await attached)[-1]["type"] == "run.complete"


async def end_lease(suite: Suite, events: list[Event]) -> None:
    """End the lease of a run whose owner has died."""
    suite.memory.before_release = pass_on
    await suite.memory.ReleaseLease(memory_pb2.ReleaseLeaseRequest(run_id=run_of(events)), None)


def hold_takeovers(suite: Suite) -> tuple[asyncio.Event, asyncio.Event]:
    """Block takeovers until the second event is set; the first event says that one has started."""
    reached, opened = asyncio.Event(), asyncio.Event()

    async def hold(_: memory_pb2.AcquireLeaseRequest) -> None:
        reached.set()
        await opened.wait()

    suite.memory.before_acquire = hold
    return reached, opened


async def test_a_slow_takeover_does_not_delay_calls_for_other_runs(serve: Serve) -> None:
    async with serve(SLOW, ANSWER, SLOW, ANSWER) as suite:
        lost_run = await run_until(suite, "content.delta", chat_id=str(uuid.uuid4()))
        async with restart(suite, "another") as client, asyncio.TaskGroup() as group:
            ended_run = await ask(suite)
            await ask_until(client, "request.query", agent_key="oneshot", chat_id=CHAT)
            reached, opened = hold_takeovers(suite)
            await end_lease(suite, lost_run)
            attached = group.create_task(read_rest(client, lost_run))
            async with asyncio.timeout(100):
                await reached.wait()
                assert (await client.steer(run_of(ended_run), "and now?")).status == "queued"
            opened.set()
            assert (await attached)[-1]["type"] == "run.complete"


@pytest.mark.real_time
async def test_a_process_that_stops_during_a_takeover_leaves_the_run_to_others(serve: Serve) -> None:
    """Found by seed 4594 of trials/simulation: the process waited for the run, which nothing ended."""
    async with serve(SLOW, ANSWER) as suite:
        events_before = await run_until(suite, "content.delta")
        async with replica(suite, "a", drain_s=60.0) as a, asyncio.timeout(100):
            reached, opened = hold_takeovers(suite)
            await end_lease(suite, events_before)
            attached = asyncio.create_task(read_rest(a.client, events_before))
            await reached.wait()
            async with a.client.watch_gates() as gates:
                await anext(gates)
                stopping = asyncio.create_task(a.stop())
                async for _ in gates:
                    pass  # until it drains
            await asyncio.sleep(0.3)  # The process has no run, and its drain has noticed.
            opened.set()
            await stopping
            with pytest.raises((Overloaded, ProviderUnavailable)):
                await attached
        assert [run.owner for run in await unfinished_runs(suite)] == [a.address], "the owner is known to be gone"
        async with restart(suite, "another") as client:
            assert (await read_rest(client, events_before))[-1]["type"] == "run.complete"


async def test_an_owner_that_lost_its_lease_disconnects_its_readers(serve: Serve) -> None:
    async with serve([*content("Hel"), 0.3, *LOOK], ANSWER) as suite:
        async with suite.client.ask("hello", agent_key="react", chat_id=CHAT) as deltas:
            events_before = await read_until(deltas, "content.delta")
            lease = {"chat_id": CHAT, "run_id": run_of(events_before), "owner": "127.0.0.1:0"}
            await suite.memory.AcquireLease(memory_pb2.AcquireLeaseRequest(ttl_ms=60_000, **lease), None)
            events_before += await read_until(deltas, "the end")
        assert not TERMINAL & {event["type"] for event in events_before}
        events_after = await read_rest(suite.client, events_before)
        assert events_after[0]["type"] == "attempt.reset"
        assert events_after[-1]["type"] == "run.complete"
        assert texts(events_after, "content") == ["All ", "good."]


async def test_a_run_that_kills_its_process_repeatedly_is_interrupted(serve: Serve) -> None:
    async with serve(SLOW) as suite:
        events_before = await run_until(suite, "content.delta")
        for generation in (1, 2, 3):
            crashes = Crashes(suite)
            async with (
                restart(suite) as client,
                client.attach(run_of(events_before), events_before[-1]["seq"]) as deltas,
            ):
                events_before += await read_until(deltas, "content.delta")
                crashes.kill(run_of(events_before), generation)
        async with restart(suite) as client:
            events_after = await read_rest(client, events_before)
        resets = [event for event in (*events_before, *events_after) if event["type"] == "attempt.reset"]
        assert [event["seq"] for event in resets] == [1_000_001, 2_000_001, 3_000_001, 4_000_001]
        assert events_after[-1]["error"]["code"] == "INTERRUPTED"
        await wait_for_ends(suite)


async def test_a_crash_counts_once_however_many_sub_agents_it_interrupts(serve: Serve) -> None:
    calls = call("call_subagent", '{"agentKey":"oneshot","task":"a"}', call_id="call_a")
    calls += call("call_subagent", '{"agentKey":"oneshot","task":"b"}', call_id="call_b", index=1)
    hangs = True

    def reply(request: llm_pb2.ChatRequest) -> list[Step]:
        if any(message.role == "tool" for message in request.messages):
            return ANSWER
        if request.messages[-1].content[0].text == "hello":
            return [*calls, *finish("tool_calls")]
        return SLOW if hangs else ANSWER

    async with serve(subagents=["oneshot"], react={"parallelToolCalls": True}) as suite:
        suite.llm.reply = reply
        await suite.stop()
        run_id, last_seq = "", 0
        for generation in (0, 1, 2):
            crashes, subagents_started = Crashes(suite), set[str]()
            async with restart(suite) as client:
                stream = client.attach(run_id, last_seq) if run_id else client.ask("hello", agent_key="react")
                async with stream as deltas:
                    async for delta in deltas:
                        event, last_seq = as_json(delta), delta.seq
                        run_id = event.get("runId", run_id)
                        if event["type"] == "content.delta":
                            subagents_started.add(event["subagentId"])
                        if len(subagents_started) == 2:
                            crashes.kill(run_id, generation)
                            break
        hangs = False
        async with restart(suite) as client:
            assert (await read(client, run_id, last_seq))[-1]["type"] == "run.complete"


async def test_a_lease_is_renewed_during_the_run_and_its_loss_disconnects_readers(serve: Serve) -> None:
    """The run sends nothing meanwhile, so only the renewal can notice the lost lease."""
    async with serve(SLOW) as suite, two_replicas(suite) as (a, _):
        async with a.client.ask("hello", agent_key="react", chat_id=CHAT) as deltas:
            events = await read_until(deltas, "content.delta")
            [before] = await unfinished_runs(suite)
            await asyncio.sleep(2 * LEASE_S)
            [after] = await unfinished_runs(suite)
            assert (after.owner, after.generation) == (a.address, 0)
            assert after.lease_expires_at > before.lease_expires_at
            lease = {"chat_id": CHAT, "run_id": run_of(events), "owner": a.address}
            await suite.memory.AcquireLease(memory_pb2.AcquireLeaseRequest(ttl_ms=60_000, **lease), None)
            events += await read_until(deltas, "the end")
        assert not TERMINAL & {event["type"] for event in events}


async def test_a_cancel_ends_the_tasks_started_by_an_earlier_owner(serve: Serve) -> None:
    play = plans.model(plans.add({"description": "a", "group": "g"}, {"description": "b", "group": "g"}))

    def stalling(request: llm_pb2.ChatRequest) -> list[Step]:
        return play(request) if request.stage == "plan" else [*content("I am at it"), 3600.0]

    async with serve(**plans.agent("PARALLEL")) as suite:
        suite.llm.reply = stalling
        events_before = await run_until(suite, "content.delta")
        async with restart(suite) as client:
            await client.cancel(run_of(events_before))
            events_after = await read_rest(client, events_before)
        cancelled = {event["taskId"] for event in events_after if event["type"] == "task.cancel"}
        assert cancelled == {
            event["taskId"] for event in (*events_before, *events_after) if event["type"] == "task.start"
        }
        assert events_after[-1]["type"] == "run.cancel"
        resets = [event for event in events_after if event["type"] == "attempt.reset"]
        assert "taskId" not in resets[0]
        assert {event["taskId"] for event in resets[1:]} <= cancelled
        await wait_for_ends(suite)


async def test_a_run_that_fails_before_its_replay_gives_open_calls_a_result(serve: Serve) -> None:
    async with serve(call_tool("slow"), ANSWER, toolConfig={"backends": ["slow"]}) as suite:
        events_before = await run_until(suite, "tool.output")
        suite.memory.before = Refusal("attempt_reset", InvalidRequest("the first append of the next owner"))
        async with restart(suite) as client:
            events_after = await read_rest(client, events_before)
            assert events_after[-1]["type"] == "run.error"
            results = [event for event in events_after if event["type"] == "tool.result"]
            assert [json.loads(event["result"])["error"] for event in results] == ["interrupted"]
            assert fold([*events_before, *events_after]) == fold(
                await read_rest(client, [events_before[2] | {"seq": 0}])
            )


async def test_the_next_owner_reports_an_estimated_cost_as_estimated(serve: Serve) -> None:
    """Found by seed 7022 of trials/simulation: a model call that was cut has a charge in the log, but no answer."""
    async with serve([*content("Hel"), BREAK], LOOK, ANSWER) as suite:
        events_before = await run_until(suite, "tool.result")
        async with restart(suite) as client:
            end = (await read_rest(client, events_before))[-1]
    assert (end["type"], end["usage"]["estimated"]) == ("run.complete", True)


FORM: dict[str, Any] = {"toolConfig": {"backends": ["look"], "frontends": ["form"]}}


@pytest.mark.parametrize("is_answered", [False, True])
async def test_a_wait_for_a_person_survives_a_restart(serve: Serve, is_answered: bool) -> None:
    async with serve(call_tool("form", '{"q":"?"}'), ANSWER, **FORM) as suite:
        suite.tools.tools.append(tool("form", "frontend", timeout_ms=60_000 if is_answered else 600))
        events_before = await run_until(suite, "gate.open")
        run_id, tool_id = run_of(events_before), events_before[-1]["gateId"]
        async with restart(suite) as client:
            if is_answered:
                assert await submit(suite, run_id, tool_id, {"a": 1}) == "accepted"
            events_after = await read_rest(client, events_before)
            late = await submit(suite, run_id, tool_id, {"a": 2})
        assert late == ("duplicate" if is_answered else "expired")
        result = only(events_after, "tool.result")
        expected = '{"a": 1}' if is_answered else '{"ok":false,"error":"expired"}'
        assert (result["toolId"], result["result"]) == (tool_id, expected)
        assert fold([*events_before, *events_after])["end"]["type"] == "run.complete"


ACT = call_tool("act", '{"at":1}')
LISTED: dict[str, Any] = {"toolConfig": {"backends": ["act"]}}
ACTED = tools_pb2.ToolDelta(result=tools_pb2.ToolOutcome(ok=True, result="acted"))

NOT_DONE = tools_pb2.CheckEffectResponse(state="not_done")


async def read_chat_events(suite: Suite) -> list[Event]:
    await wait_for_ends(suite)
    return [as_json(event) for event in (await suite.client.chat(CHAT)).events]


@pytest.mark.parametrize("new_approval", ["allow", "deny"])
@pytest.mark.parametrize("decision", ["approve", "reject"])
async def test_an_open_approval_waits_for_its_answer_though_the_rules_have_changed(
    serve: Serve, new_approval: str, decision: str
) -> None:
    async with serve(ACT, ANSWER, **LISTED) as suite:
        suite.tools.tools.append(tool("act", "backend", approval="ask"))
        suite.tools.plays["act"] = [[ACTED]]
        events_before = await run_until(suite, "approval.ask")
        suite.tools.tools[0].approval = new_approval
        suite.tools.effects = [NOT_DONE]
        async with restart(suite) as client:
            assert await submit(
                suite, run_of(events_before), only(events_before, "approval.ask")["approvalId"], {"decision": decision}
            )
            await read_rest(client, events_before)
            events = await read_chat_events(suite)
        assert (last_result(suite) == "acted") == (decision == "approve")
        assert len(suite.tools.requests) == (decision == "approve")
        assert only(events, "approval.answer")["decision"] == decision
        assert only(events, "gate.close")["state"] == "answered"


@pytest.mark.parametrize("is_known", [False, True])
async def test_an_approval_to_rerun_a_call_stays_open_without_reader_or_when_not_done(
    serve: Serve, is_known: bool
) -> None:
    async with serve(ACT, ANSWER, **LISTED) as suite:
        suite.tools.tools.append(tool("act", "backend", effect="once"))
        suite.tools.plays["act"] = [[BREAK], [ACTED]]
        events_before = await run_until(suite, "approval.ask")
        if is_known:
            suite.tools.effects = [NOT_DONE]
        async with restart(suite):
            status = await submit(
                suite, run_of(events_before), only(events_before, "approval.ask")["approvalId"], {"decision": "reject"}
            )
            assert status == "accepted"
            events = await read_chat_events(suite)
        assert json.loads(last_result(suite))["error"] == "unknown"
        assert len(suite.tools.requests) == 1
        assert only(events, "approval.answer")["decision"] == "reject"
        assert only(events, "gate.close")["state"] == "answered"
