"""Parked runs leave nothing in the orchestrator, and continue as if they had stayed."""

import asyncio
import gc
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from headrace.client import Client
from headrace.errors import Overloaded
from headrace.sse import SseReader
from headrace.v1 import memory_pb2
from services.facade import service as facade
from services.facade.config import Config as FacadeConfig
from services.orchestrator.lifecycle.admission.fair_use import NoLimits
from services.orchestrator.lifecycle.live_runs import HeldRuns, LiveRuns
from services.orchestrator.lifecycle.parking import Parking
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.run import Run
from services.runtime.capacity import Capacity
from services.runtime.process.config import ProcessSettings
from services.runtime.rpc.channels import open_channel
from tests.support.orchestrator import Serve, Suite, ask_for, only, read, tool, two_replicas
from tests.support.orchestrator.answerers import APPROVE
from tests.support.orchestrator.crashes import restart
from tests.support.orchestrator.gate_runs import GateFollower, reading_run
from tests.support.orchestrator.parked import ParkingCounter, ask_and_leave_at_gate, wait_until_unowned
from tests.support.orchestrator.recorded_runs import World
from tests.support.orchestrator.requests import last_result
from tests.support.orchestrator.runs import wait_for_title
from tests.support.orchestrator.schedules import schedules_of
from tests.support.orchestrator.steps import Step, call, call_tool, content, finish
from tests.support.orchestrator.subagents import HELPER, delegate_task, script_replies
from tests.support.order import TERMINAL, Event, check_order

LISTED = {"toolConfig": {"backends": ["act", "look"], "frontends": ["confirm"]}}

ACT = [call_tool("act", '{"at": 1}'), content("All ", "good.")]


def set_up_run(suite: Suite, turns: list[list[Step]] = ACT, **rule: Any) -> World:
    world = World(suite, turns)
    suite.tools.tools = [
        tool("act", "backend", approval="ask", effect="once", answerers=rule or None),
        tool("confirm", "frontend", timeout_ms=100_000, viewport_key="view"),
        tool("look", "backend", effect="read"),
    ]
    return world


@asynccontextmanager
async def parked_run(
    serve: Serve, turns: list[list[Step]] = ACT, **fields: Any
) -> AsyncGenerator[tuple[Suite, World, tuple[str, str]]]:
    """Have a parked run wait for an approval, without reader or owner; yield it with its gate."""
    async with serve(park_after_s=0, **(LISTED | fields)) as suite:
        world = set_up_run(suite, turns)
        gate = await ask_and_leave_at_gate(suite.client)
        await wait_until_unowned(suite, gate[0])
        yield suite, world, gate


def assert_seamless(events: list[Event], end: str = "run.complete") -> None:
    """Check that events look as if one owner had sent them: nothing repeated, nothing reset, one end."""
    seqs = [event["seq"] for event in events]
    assert seqs == sorted(set(seqs))
    kinds = [event["type"] for event in events]
    assert "attempt.reset" not in kinds
    assert [kind for kind in kinds if kind in TERMINAL] == [end]
    if not [kind for kind in kinds if kind.endswith(".snapshot")]:
        check_order([event | {"seq": position} for position, event in enumerate(events, start=1)])
    for kind in ("gate.open", "gate.close", "request.submit", "tool.result"):
        names = [event.get("gateId") or event["toolId"] for event in events if event["type"] == kind]
        assert len(names) == len(set(names))


async def test_a_parked_run_without_reader_has_no_owner_and_resumes_when_answered(serve: Serve) -> None:
    async with serve(park_after_s=0, **LISTED) as suite:
        world, parked = set_up_run(suite), ParkingCounter()
        gate = await ask_and_leave_at_gate(suite.client)
        due_at = await wait_until_unowned(suite, gate[0])
        assert (await suite.client.gate(*gate)).expires_at == due_at
        run = await suite.client.run(gate[0])
        page = await suite.client.chat_runs(run.chat_id)
        for each_run in (run, *page.runs):
            assert (each_run.state, each_run.usage.model_calls, each_run.usage.input_tokens) == ("waiting", 1, 10)
        assert (page.runs_total, page.usage_total.model_calls, page.usage_total.input_tokens) == (1, 1, 10)
        request = memory_pb2.ListUnfinishedRunsRequest()
        assert [*(await suite.memory.ListUnfinishedRuns(request, None)).runs] == [], "no replica looks for the run"
        await parked.wait()
        assert parked.times == 1
        gc.collect()
        assert [each_run.id for each_run in gc.get_objects() if isinstance(each_run, Run)] == []
        assert await approve(suite.client, gate) == "accepted"
        events = await read(suite.client, gate[0])
        assert_seamless(events)
        assert sum(world.runs.values()) == 1
        assert (await suite.client.run(gate[0])).state == "completed"
        assert len(suite.llm.requests) == 2


async def test_a_reader_keeps_its_stream_while_the_run_is_parked(serve: Serve) -> None:
    async with serve(park_after_s=0, **LISTED) as suite:
        set_up_run(suite)
        parked = ParkingCounter()
        async with reading_run(suite.client) as (gate, _, run):
            await parked.wait()
            assert await approve(suite.client, gate) == "accepted"
        live = await run
        assert_seamless(live)
        whole = await read(suite.client, gate[0])
        text_events = ("content.start", "content.delta", "content.snapshot", "content.end", "reasoning.delta")
        kinds = [[event["type"] for event in events if event["type"] not in text_events] for events in (live, whole)]
        assert "tool.result" in kinds[0]
        # A live reader got deltas of which the log has only the whole block.
        assert [kind for kind in kinds[0] if kind in kinds[1]] == [kind for kind in kinds[1] if kind in kinds[0]]


async def test_a_reader_over_http_keeps_its_stream_while_the_run_is_parked(serve: Serve) -> None:
    config = FacadeConfig(port=0, process=ProcessSettings(drain_s=0), heartbeat_s=1)
    async with serve(park_after_s=0, **LISTED) as suite, open_channel(suite.address) as agents:
        set_up_run(suite)
        parked = ParkingCounter()
        peers = {"orchestrator": agents, "memory": agents, "tools": agents}
        async with facade.serve(config, peers) as address, aiohttp.ClientSession() as http:
            body = {"message": "hello", "agentKey": "react"}
            async with http.post(f"http://{address}/api/query", json=body) as response:
                events: list[Event] = []
                reader = SseReader()
                async for chunk in response.content.iter_any():
                    for frame in reader.feed(chunk):
                        if not frame.data.startswith(b"{"):
                            continue
                        events.append(event := json.loads(frame.data))
                        if event["type"] == "gate.open":
                            await parked.wait()
                            gate = only(events, "run.start")["runId"], event["gateId"]
                            assert await approve(suite.client, gate) == "accepted"
        assert_seamless(events)


async def test_a_parked_run_resumes_when_its_timeout_expires(serve: Serve, tmp_path: Path) -> None:
    """The run has no reader; test_gate_table has the case with a reader."""
    (tmp_path / "approvals.yaml").write_text("answerTimeoutMs: 2000\n")
    async with parked_run(serve) as (suite, world, gate):
        await wait_for_end(suite, gate[0])
        events = await read(suite.client, gate[0])
        assert_seamless(events)
        assert only(events, "gate.close")["state"] == "expired"
        assert only(events, "approval.answer")["note"].startswith("nobody answered within 2 s")
        assert "nobody answered within 2 s" in last_result(suite), "the model gets the note"
        assert (await suite.client.answer_gate(*gate, APPROVE)).status == "expired"
        assert not world.runs


async def wait_for_end(suite: Suite, run_id: str) -> None:
    """Wait for the run's end by asking memory only, since attaching would take the run over."""
    while (await suite.memory.ListUnfinishedRuns(memory_pb2.ListUnfinishedRunsRequest(run_id=run_id), None)).runs:
        await asyncio.sleep(0.02)


async def test_a_parked_run_sends_its_reminder_and_escalation_and_parks_again(serve: Serve) -> None:
    rule: dict[str, Any] = {
        "any_of": ["requester"],
        "remind_after_ms": 1500,
        "escalate_after_ms": 3000,
        "escalate_to": ["user:bob"],
    }
    async with serve(park_after_s=0, **LISTED) as suite:
        world, parked = set_up_run(suite, **rule), ParkingCounter()
        gate = await ask_and_leave_at_gate(suite.client)
        await parked.wait()
        while [step.step for step in (await suite.client.gate(*gate)).steps] != ["reminded", "escalated"]:
            await asyncio.sleep(0.02)
        await parked.wait(2)
        assert await approve(suite.client, gate) == "accepted"
        events = await read(suite.client, gate[0])
        assert_seamless(events)
        assert [event["step"] for event in events if event["type"] == "gate.step"] == ["reminded", "escalated"]
        assert sum(world.runs.values()) == 1


@pytest.mark.parametrize("is_read", [True, False])
async def test_a_parked_run_survives_a_restart_of_every_orchestrator(is_read: bool, serve: Serve) -> None:
    async with serve(park_after_s=0, **LISTED) as suite, asyncio.TaskGroup() as group:
        world, parked, follower = set_up_run(suite), ParkingCounter(), GateFollower()
        reading = group.create_task(follower.follow(suite.client)) if is_read else None
        gate = await follower.gate if is_read else await ask_and_leave_at_gate(suite.client)
        await parked.wait()
        await suite.stop()
        if reading is not None:
            assert (await reading)[-1]["type"] not in TERMINAL
        await wait_until_unowned(suite, gate[0])
        async with restart(suite) as client:
            assert [listed_gate.gate_id for listed_gate in (await client.gates()).gates] == [gate[1]]
            await wait_until_unowned(suite, gate[0])
            assert (await client.answer_gate(*gate, APPROVE)).status == "accepted"
            assert_seamless(await read(client, gate[0]))
        assert sum(world.runs.values()) == 1


async def test_a_parked_run_can_be_cancelled(serve: Serve) -> None:
    """The run has no reader, as above."""
    async with parked_run(serve) as (suite, world, gate):
        await suite.client.cancel(gate[0])
        assert_seamless(await read(suite.client, gate[0]), "run.cancel")
        assert (await suite.client.gate(*gate)).state == "cancelled"
        assert not world.runs


async def test_a_new_query_waits_until_the_chats_parked_run_has_ended(serve: Serve) -> None:
    async with parked_run(serve) as (suite, _, gate), asyncio.TaskGroup() as group:
        chat_id = (await suite.client.run(gate[0])).chat_id
        second = group.create_task(ask_for(suite.client, "and now?", agent_key="react", chat_id=chat_id))
        while len((await suite.client.chat_runs(chat_id)).runs) < 2:
            await asyncio.sleep(0.01)
        assert await approve(suite.client, gate) == "accepted"
        assert (await second)[-1]["type"] == "run.complete"
        runs = (await suite.client.chat_runs(chat_id)).runs
        assert [run.state for run in runs] == ["completed", "completed"]
        assert runs[0].run_id == gate[0]


async def test_a_steer_to_a_parked_run_is_in_its_next_turn(serve: Serve) -> None:
    async with parked_run(serve) as (suite, _, gate):
        assert (await suite.client.steer(gate[0], "be quick")).status == "accepted"
        await wait_until_unowned(suite, gate[0])
        assert await approve(suite.client, gate) == "accepted"
        events = await read(suite.client, gate[0])
        assert_seamless(events)
        assert only(events, "request.steer")["message"] == "be quick"
        texts = [part.text for message in suite.llm.requests[-1].messages for part in message.content]
        assert any("be quick" in text for text in texts)


async def test_a_run_whose_sub_agent_waits_is_parked_with_it(serve: Serve) -> None:
    helper = HELPER | {"toolConfig": {"backends": ["act"]}}
    async with serve(park_after_s=0, subagents=["helper"], beside={"helper": helper}) as suite:
        world, parked = set_up_run(suite), ParkingCounter()
        hello = [delegate_task("find it", agentKey="helper") + finish("tool_calls"), content("Done.") + finish()]
        script_replies(suite, hello=hello, find=[ACT[0], content("found") + finish()])
        async with reading_run(suite.client) as (gate, _, run):
            await parked.wait()
            assert await approve(suite.client, gate) == "accepted"
        live = await run
        assert_seamless(live)
        assert only(live, "subagent.end")["summary"] == "found"
        assert sum(world.runs.values()) == 1


async def test_a_run_with_a_running_tool_is_not_parked(serve: Serve) -> None:
    calls = call("act", '{"at": 1}') + call("look", index=1, call_id="call_2") + finish("tool_calls")
    fields: dict[str, Any] = LISTED | {"react": {"parallelToolCalls": True}}
    async with serve(park_after_s=0, **fields) as suite:
        set_up_run(suite)
        suite.llm.reply, suite.llm.turns = None, [calls, content("All good.") + finish()]
        suite.tools.execute = None
        suite.tools.delay_s = 0.5
        parked = ParkingCounter()
        async with reading_run(suite.client) as (gate, follower, run):
            while all(event["type"] != "tool.result" for event in follower.events):
                assert parked.times == 0
                await asyncio.sleep(0.005)
            await parked.wait()
            suite.tools.delay_s = 0
            assert await approve(suite.client, gate) == "accepted"
        events = await run
        assert_seamless(events)
        assert len([event for event in events if event["type"] == "tool.result"]) == 2
        assert [request.tool_name for request in suite.tools.requests] == ["look", "act"]


async def test_one_of_two_replicas_that_take_a_parked_run_at_once_gets_it(serve: Serve) -> None:
    async with serve(park_after_s=0, **LISTED) as suite, two_replicas(suite) as (a, b):
        world = set_up_run(suite)
        gate = await ask_and_leave_at_gate(a.client)
        await wait_until_unowned(suite, gate[0])
        answers = await asyncio.gather(*(each_replica.client.answer_gate(*gate, APPROVE) for each_replica in (a, b)))
        assert sorted(answer.status for answer in answers) == ["accepted", "duplicate"]
        for each_replica in (a, b):
            assert_seamless(await read(each_replica.client, gate[0]))
        assert sum(world.runs.values()) == 1


async def test_readers_at_any_replica_follow_a_parked_run_to_its_end(serve: Serve) -> None:
    async with serve(park_after_s=0, **LISTED) as suite, two_replicas(suite) as (a, b):
        world, parked = set_up_run(suite), ParkingCounter()
        async with reading_run(a.client) as (gate, _, run):
            await parked.wait()
            other = asyncio.create_task(read(b.client, gate[0]))
            await parked.wait(2)
            assert await approve(b.client, gate) == "accepted"
        for events in (await run, await other):
            assert_seamless(events)
        assert sum(world.runs.values()) == 1


async def approve(client: Client, gate: tuple[str, str]) -> str:
    return (await client.answer_gate(*gate, APPROVE)).status


async def test_a_title_is_written_after_a_run_that_was_parked(serve: Serve) -> None:
    async with parked_run(serve, chatTitle="model") as (suite, _, gate):
        suite.llm.aside["title"] = content("Mill wheels") + finish()
        assert await approve(suite.client, gate) == "accepted"
        chat_id = (await suite.client.run(gate[0])).chat_id
        await wait_for_title(suite, chat_id, "Mill wheels")


@pytest.mark.parametrize("fields", [{"record": True}, {"on_disconnect": "cancel"}])
async def test_a_run_that_needs_its_owner_is_not_parked(fields: dict[str, Any], serve: Serve) -> None:
    async with serve(park_after_s=0, **LISTED) as suite:
        set_up_run(suite)
        parked = ParkingCounter()
        async with reading_run(suite.client, **fields) as (gate, _, run):
            other = await ask_and_leave_at_gate(suite.client)
            await wait_until_unowned(suite, other[0])
            await parked.wait()
            assert parked.times == 1, "each check covers all runs"
            assert await approve(suite.client, gate) == "accepted"
        assert_seamless(await run)


@pytest.mark.parametrize("overlap", ["skip", "queue"])
async def test_a_schedules_overlap_rule_applies_to_a_parked_run(overlap: str, serve: Serve) -> None:
    async with parked_run(serve) as (suite, _, gate), schedules_of(suite) as schedules:
        chat_id = (await suite.client.run(gate[0])).chat_id
        schedule_id = await schedules.create_and_trigger(chat_id=chat_id, overlap=overlap)
        [firing] = await schedules.wait_for_firings(schedule_id, 1)
        assert firing.outcome == {"skip": "skipped", "queue": "started"}[overlap]
        assert await approve(suite.client, gate) == "accepted"
        assert_seamless(await read(suite.client, gate[0]))
        if overlap == "queue":
            assert (await read(suite.client, firing.run_id))[-1]["type"] == "run.complete"


class CountedRuns(LiveRuns):
    looks = 0

    def all(self) -> list[Run]:
        self.looks += 1
        return super().all()


async def test_parking_does_not_list_the_runs_of_an_idle_process() -> None:
    live = CountedRuns(Capacity(8, is_shared=False), NoLimits())
    async with open_channel("127.0.0.1:1") as nobody:
        peers = Peers.from_channels(llm_gateway=nobody, memory=nobody, tools=nobody)
        watching = asyncio.create_task(Parking(live, HeldRuns(), peers, 0, lambda _: True).watch())
        await asyncio.wait([watching], timeout=0.1)  # five looks
        watching.cancel()
    assert live.looks == 0


async def test_an_answer_waits_while_memory_refuses_to_park_the_run(serve: Serve) -> None:
    second_call = call_tool("act", '{"at": 2}', call_id="again")
    refused, allowed = asyncio.Event(), asyncio.Event()
    async with parked_run(serve, [ACT[0], second_call, ACT[1]]) as (suite, world, first), asyncio.TaskGroup() as group:

        async def refuse(request: memory_pb2.ReleaseLeaseRequest) -> None:
            if request.due_at and not allowed.is_set():
                refused.set()
                raise Overloaded("not now")

        suite.memory.before_release = refuse
        assert await approve(suite.client, first) == "accepted"
        await refused.wait()  # The release at the second gate, which has no reader.
        [listed] = (await suite.client.gates()).gates
        pending_answer = group.create_task(approve(suite.client, (listed.run_id, listed.gate_id)))
        await asyncio.wait([pending_answer], timeout=0.3)
        assert not pending_answer.done()
        allowed.set()
        assert await pending_answer == "accepted"
        assert_seamless(await read(suite.client, first[0]))
        assert sum(world.runs.values()) == 2
