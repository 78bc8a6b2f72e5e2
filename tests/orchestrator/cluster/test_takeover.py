"""Runs that a process left behind: who goes on with them, with what, and when nobody does."""

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


async def test_a_run_of_another_owner_is_left_alone_while_its_lease_holds(serve: Serve) -> None:
    async with serve(SLOW, ANSWER) as suite:
        seen = await run_until(suite, "content.delta")
        [before] = await unfinished_runs(suite)
        assert (before.owner, before.generation) == ("127.0.0.1:0", 0)
        async with restart(suite, "another") as client:
            attached = asyncio.create_task(read_rest(client, seen))
            await asyncio.sleep(0.5)
            assert await unfinished_runs(suite) == [before]
            assert not attached.done(), "its owner may come back"
            await give_up(suite, seen)
            assert (await attached)[-1]["type"] == "run.complete"


async def give_up(suite: Suite, events: list[Event]) -> None:
    """Have memory end the lease of the run whose owner has died."""
    suite.memory.before_release = pass_on
    await suite.memory.ReleaseLease(memory_pb2.ReleaseLeaseRequest(run_id=run_of(events)), None)


def hold_takeovers(suite: Suite) -> tuple[asyncio.Event, asyncio.Event]:
    """Have whoever takes a run over wait for the second event; the first says that somebody does."""
    reached, opened = asyncio.Event(), asyncio.Event()

    async def hold(_: memory_pb2.AcquireLeaseRequest) -> None:
        reached.set()
        await opened.wait()

    suite.memory.before_acquire = hold
    return reached, opened


async def test_a_takeover_that_takes_long_keeps_nobody_waiting_who_has_nothing_to_take_over(serve: Serve) -> None:
    async with serve(SLOW, ANSWER, SLOW, ANSWER) as suite:
        lost = await run_until(suite, "content.delta", chat_id=str(uuid.uuid4()))
        async with restart(suite, "another") as client, asyncio.TaskGroup() as group:
            ended = await ask(suite)
            await ask_until(client, "request.query", agent_key="oneshot", chat_id=CHAT)
            reached, opened = hold_takeovers(suite)
            await give_up(suite, lost)
            attached = group.create_task(read_rest(client, lost))
            async with asyncio.timeout(100):
                await reached.wait()
                assert (await client.steer(run_of(ended), "and now?")).status == "queued"
            opened.set()
            assert (await attached)[-1]["type"] == "run.complete"


@pytest.mark.real_time
async def test_a_process_that_stops_in_the_midst_of_a_takeover_leaves_the_run_to_others(serve: Serve) -> None:
    """Found by seed 4594 of trials/simulation: the process waited for the run, which nobody told to end."""
    async with serve(SLOW, ANSWER) as suite:
        seen = await run_until(suite, "content.delta")
        async with replica(suite, "a", drain_s=60.0) as a, asyncio.timeout(100):
            reached, opened = hold_takeovers(suite)
            await give_up(suite, seen)
            attached = asyncio.create_task(read_rest(a.client, seen))
            await reached.wait()
            async with a.client.watch_gates() as gates:
                await anext(gates)
                stopping = asyncio.create_task(a.stop())
                async for _ in gates:
                    pass  # until it drains
            await asyncio.sleep(0.3)  # it has no run, and has seen so
            opened.set()
            await stopping
            with pytest.raises((Overloaded, ProviderUnavailable)):
                await attached
        assert [run.owner for run in await unfinished_runs(suite)] == [a.address], "which is known to have left it"
        async with restart(suite, "another") as client:
            assert (await read_rest(client, seen))[-1]["type"] == "run.complete"


async def test_an_owner_that_lost_its_run_lets_its_readers_go(serve: Serve) -> None:
    async with serve([*content("Hel"), 0.3, *LOOK], ANSWER) as suite:
        async with suite.client.ask("hello", agent_key="react", chat_id=CHAT) as deltas:
            seen = await read_until(deltas, "content.delta")
            lease = {"chat_id": CHAT, "run_id": run_of(seen), "owner": "127.0.0.1:0"}
            await suite.memory.AcquireLease(memory_pb2.AcquireLeaseRequest(ttl_ms=60_000, **lease), None)
            seen += await read_until(deltas, "the end")
        assert not TERMINAL & {event["type"] for event in seen}
        rest = await read_rest(suite.client, seen)
        assert rest[0]["type"] == "attempt.reset"
        assert rest[-1]["type"] == "run.complete"
        assert texts(rest, "content") == ["All ", "good."]


async def test_a_run_that_kills_its_process_is_not_gone_on_with_for_ever(serve: Serve) -> None:
    async with serve(SLOW) as suite:
        seen = await run_until(suite, "content.delta")
        for generation in (1, 2, 3):
            crashes = Crashes(suite)
            async with restart(suite) as client, client.attach(run_of(seen), seen[-1]["seq"]) as deltas:
                seen += await read_until(deltas, "content.delta")
                crashes.kill(run_of(seen), generation)
        async with restart(suite) as client:
            rest = await read_rest(client, seen)
        resets = [event for event in (*seen, *rest) if event["type"] == "attempt.reset"]
        assert [event["seq"] for event in resets] == [1_000_001, 2_000_001, 3_000_001, 4_000_001]
        assert rest[-1]["error"]["code"] == "INTERRUPTED"
        await wait_for_ends(suite)


async def test_a_crash_counts_once_however_many_sub_agents_it_interrupts(serve: Serve) -> None:
    two = call("call_subagent", '{"agentKey":"oneshot","task":"a"}', call_id="call_a")
    two += call("call_subagent", '{"agentKey":"oneshot","task":"b"}', call_id="call_b", index=1)
    hangs = True

    def reply(request: llm_pb2.ChatRequest) -> list[Step]:
        if any(message.role == "tool" for message in request.messages):
            return ANSWER
        if request.messages[-1].content[0].text == "hello":
            return [*two, *finish("tool_calls")]
        return SLOW if hangs else ANSWER

    async with serve(subagents=["oneshot"], react={"parallelToolCalls": True}) as suite:
        suite.llm.reply = reply
        await suite.stop()
        run_id, last_seq = "", 0
        for generation in (0, 1, 2):
            crashes, begun = Crashes(suite), set[str]()
            async with restart(suite) as client:
                stream = client.attach(run_id, last_seq) if run_id else client.ask("hello", agent_key="react")
                async with stream as deltas:
                    async for delta in deltas:
                        event, last_seq = as_json(delta), delta.seq
                        run_id = event.get("runId", run_id)
                        if event["type"] == "content.delta":
                            begun.add(event["subagentId"])
                        if len(begun) == 2:
                            crashes.kill(run_id, generation)
                            break
        hangs = False
        async with restart(suite) as client:
            assert (await read(client, run_id, last_seq))[-1]["type"] == "run.complete"


async def test_a_lease_is_renewed_while_its_run_goes_on_and_one_that_is_lost_lets_its_readers_go(serve: Serve) -> None:
    """The run says nothing meanwhile, so that nothing but the renewal says so."""
    async with serve(SLOW) as suite, two_replicas(suite) as (a, _):
        async with a.client.ask("hello", agent_key="react", chat_id=CHAT) as deltas:
            seen = await read_until(deltas, "content.delta")
            [before] = await unfinished_runs(suite)
            await asyncio.sleep(2 * LEASE_S)
            [after] = await unfinished_runs(suite)
            assert (after.owner, after.generation) == (a.address, 0)
            assert after.lease_expires_at > before.lease_expires_at
            lease = {"chat_id": CHAT, "run_id": run_of(seen), "owner": a.address}
            await suite.memory.AcquireLease(memory_pb2.AcquireLeaseRequest(ttl_ms=60_000, **lease), None)
            seen += await read_until(deltas, "the end")
        assert not TERMINAL & {event["type"] for event in seen}


async def test_a_cancel_ends_what_an_earlier_owner_has_begun(serve: Serve) -> None:
    play = plans.model(plans.add({"description": "a", "group": "g"}, {"description": "b", "group": "g"}))

    def stalling(request: llm_pb2.ChatRequest) -> list[Step]:
        return play(request) if request.stage == "plan" else [*content("I am at it"), 3600.0]

    async with serve(**plans.agent("PARALLEL")) as suite:
        suite.llm.reply = stalling
        seen = await run_until(suite, "content.delta")
        async with restart(suite) as client:
            await client.cancel(run_of(seen))
            rest = await read_rest(client, seen)
        ended = {event["taskId"] for event in rest if event["type"] == "task.cancel"}
        assert ended == {event["taskId"] for event in (*seen, *rest) if event["type"] == "task.start"}
        assert rest[-1]["type"] == "run.cancel"
        resets = [event for event in rest if event["type"] == "attempt.reset"]
        assert "taskId" not in resets[0]
        assert {event["taskId"] for event in resets[1:]} <= ended
        await wait_for_ends(suite)


async def test_a_run_that_fails_before_its_replay_gives_its_calls_results(serve: Serve) -> None:
    async with serve(call_tool("slow"), ANSWER, toolConfig={"backends": ["slow"]}) as suite:
        seen = await run_until(suite, "tool.output")
        suite.memory.before = Refusal("attempt_reset", InvalidRequest("the first append of the next owner"))
        async with restart(suite) as client:
            rest = await read_rest(client, seen)
            assert rest[-1]["type"] == "run.error"
            results = [event for event in rest if event["type"] == "tool.result"]
            assert [json.loads(event["result"])["error"] for event in results] == ["interrupted"]
            assert fold([*seen, *rest]) == fold(await read_rest(client, [seen[2] | {"seq": 0}]))


async def test_a_cost_that_was_estimated_is_told_so_by_the_next_owner(serve: Serve) -> None:
    """Found by seed 7022 of trials/simulation: no answer is recorded of a call that was cut, and its charge is."""
    async with serve([*content("Hel"), BREAK], LOOK, ANSWER) as suite:
        seen = await run_until(suite, "tool.result")
        async with restart(suite) as client:
            end = (await read_rest(client, seen))[-1]
    assert (end["type"], end["usage"]["estimated"]) == ("run.complete", True)


FORM: dict[str, Any] = {"toolConfig": {"backends": ["look"], "frontends": ["form"]}}


@pytest.mark.parametrize("is_answered", [False, True])
async def test_a_wait_for_a_person_survives_a_restart(serve: Serve, is_answered: bool) -> None:
    async with serve(call_tool("form", '{"q":"?"}'), ANSWER, **FORM) as suite:
        suite.tools.tools.append(tool("form", "frontend", timeout_ms=60_000 if is_answered else 600))
        seen = await run_until(suite, "gate.open")
        run_id, tool_id = run_of(seen), seen[-1]["gateId"]
        async with restart(suite) as client:
            if is_answered:
                assert await submit(suite, run_id, tool_id, {"a": 1}) == "accepted"
            rest = await read_rest(client, seen)
            late = await submit(suite, run_id, tool_id, {"a": 2})
        assert late == ("duplicate" if is_answered else "expired")
        result = only(rest, "tool.result")
        expected = '{"a": 1}' if is_answered else '{"ok":false,"error":"expired"}'
        assert (result["toolId"], result["result"]) == (tool_id, expected)
        assert fold([*seen, *rest])["end"]["type"] == "run.complete"


ACT = call_tool("act", '{"at":1}')
LISTED: dict[str, Any] = {"toolConfig": {"backends": ["act"]}}
ACTED = tools_pb2.ToolDelta(result=tools_pb2.ToolOutcome(ok=True, result="acted"))

NOT_DONE = tools_pb2.CheckEffectResponse(state="not_done")


async def events_of_the_chat(suite: Suite) -> list[Event]:
    await wait_for_ends(suite)
    return [as_json(event) for event in (await suite.client.chat(CHAT)).events]


@pytest.mark.parametrize("today", ["allow", "deny"])
@pytest.mark.parametrize("decision", ["approve", "reject"])
async def test_a_call_that_was_asked_about_waits_for_its_answer_when_the_rules_have_changed(
    serve: Serve, today: str, decision: str
) -> None:
    async with serve(ACT, ANSWER, **LISTED) as suite:
        suite.tools.tools.append(tool("act", "backend", approval="ask"))
        suite.tools.plays["act"] = [[ACTED]]
        seen = await run_until(suite, "approval.ask")
        suite.tools.tools[0].approval = today
        suite.tools.effects = [NOT_DONE]
        async with restart(suite) as client:
            assert await submit(suite, run_of(seen), only(seen, "approval.ask")["approvalId"], {"decision": decision})
            await read_rest(client, seen)
            events = await events_of_the_chat(suite)
        assert (last_result(suite) == "acted") == (decision == "approve")
        assert len(suite.tools.requests) == (decision == "approve")
        assert only(events, "approval.answer")["decision"] == decision
        assert only(events, "gate.close")["state"] == "answered"


@pytest.mark.parametrize("is_known", [False, True])
async def test_a_question_whether_a_call_runs_again_stands_when_nobody_reads_or_its_outcome_is_known(
    serve: Serve, is_known: bool
) -> None:
    async with serve(ACT, ANSWER, **LISTED) as suite:
        suite.tools.tools.append(tool("act", "backend", effect="once"))
        suite.tools.plays["act"] = [[BREAK], [ACTED]]
        seen = await run_until(suite, "approval.ask")
        if is_known:
            suite.tools.effects = [NOT_DONE]
        async with restart(suite):
            status = await submit(suite, run_of(seen), only(seen, "approval.ask")["approvalId"], {"decision": "reject"})
            assert status == "accepted"
            events = await events_of_the_chat(suite)
        assert json.loads(last_result(suite))["error"] == "unknown"
        assert len(suite.tools.requests) == 1
        assert only(events, "approval.answer")["decision"] == "reject"
        assert only(events, "gate.close")["state"] == "answered"
