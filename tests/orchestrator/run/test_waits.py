"""Waits for people: early, late, repeated and unknown submits; cancels; and whether a wait uses the run's time."""

import asyncio
import json
from contextlib import ExitStack

import pytest

from headrace.errors import InvalidRequest, NotFound, ProviderUnavailable, QueueFull
from headrace.v1 import memory_pb2
from services.orchestrator.money.clock import Clock
from services.orchestrator.run.control.gates import KEPT_MAX, Gates, Submission
from tests.support.orchestrator import Serve, Suite, ask, kinds, last_result, only, state, submit, submits, tool
from tests.support.orchestrator.runs import read_recorded
from tests.support.orchestrator.steps import ANSWER, call, call_tool, finish
from tests.support.orchestrator.watched_memory import Refusal
from tests.support.order import Event, fold
from tests.support.timing import within

CONFIRM = call_tool("confirm", '{"q":1}')
LISTED = {"toolConfig": {"backends": ["look", "slow"], "frontends": ["confirm"]}}
PARALLEL = {"react": {"parallelToolCalls": True}}


def offer_form(suite: Suite, timeout_ms: int) -> None:
    suite.tools.tools.append(tool("confirm", "frontend", timeout_ms=timeout_ms))


async def test_an_early_submit_is_accepted_and_later_ones_are_duplicates(serve: Serve) -> None:
    early = [*call("confirm", '{"q":1}'), 0.3, *finish("tool_calls")]
    async with serve(early, ANSWER, **LISTED) as suite:
        offer_form(suite, 100_000)

        async def answer(event: Event) -> None:
            first = await submit(suite, event["runId"], event["toolId"], "first", request_id="r1")
            second = await submit(suite, event["runId"], event["toolId"], "second", request_id="r2")
            again = await submit(suite, event["runId"], event["toolId"], "first", request_id="r1")
            assert (first, second, again) == ("accepted", "duplicate", "accepted")

        events = await ask(suite, ("tool.start", answer))
        assert last_result(suite) == "first"
        history = await read_recorded(suite, suite.run_ids[0])
    assert kinds(events, "request.submit", "tool.end") == ["request.submit", "tool.end"]
    assert fold(history) == fold(events)


async def test_of_simultaneous_submits_one_is_accepted(serve: Serve) -> None:
    async with serve(CONFIRM, ANSWER, **LISTED) as suite:
        offer_form(suite, 100_000)

        async def answer(event: Event) -> None:
            submits_sent = [submit(suite, event["runId"], event["toolId"], number) for number in range(10)]
            assert sorted(await asyncio.gather(*submits_sent)) == ["accepted"] + ["duplicate"] * 9

        events = await ask(suite, ("tool.start", answer))
        assert last_result(suite) == str(only(events, "request.submit")["payload"])


async def test_a_wait_without_a_submit_expires_and_a_late_submit_gets_expired(serve: Serve) -> None:
    async with serve(CONFIRM, [0.4, *ANSWER], **LISTED) as suite:
        offer_form(suite, 150)

        async def late(event: Event) -> None:
            assert await submit(suite, event["runId"], event["toolId"], "late") == "expired"

        events = await ask(suite, ("tool.result", late))
        assert last_result(suite) == '{"ok":false,"error":"expired"}'
        tool_id, run_id = only(events, "tool.start")["toolId"], events[-1]["runId"]
        assert await submit(suite, run_id, tool_id, "much later") == "expired"
        assert await submit(suite, run_id, "t_00000000", "whose?") == "unmatched"


async def test_a_submit_to_an_ended_run_is_a_duplicate(serve: Serve) -> None:
    async with serve(CONFIRM, ANSWER, **LISTED) as suite:
        offer_form(suite, 100_000)

        async def answer(event: Event) -> None:
            assert await submit(suite, event["runId"], "t_00000000", "whose?") == "unmatched"
            await submits(suite, "yes")(event)

        events = await ask(suite, ("tool.start", answer))
        assert await submit(suite, events[-1]["runId"], only(events, "tool.start")["toolId"], "yes") == "duplicate"


async def test_invalid_submits_are_refused(serve: Serve) -> None:
    run_id = "5f0c0000-0000-4000-8000-0000000000aa"
    async with serve(ANSWER) as suite:
        with pytest.raises(NotFound):
            await submit(suite, run_id, "t_00000000", 1)
        with pytest.raises(InvalidRequest, match="either toolId or approvalId"):
            await submit(suite, run_id, "t_00000000", 1, approval_id="x")
        with pytest.raises(InvalidRequest, match="payload"):
            await submit(suite, run_id, "approval_00000000", {"decision": "maybe"})
        with pytest.raises(InvalidRequest, match=r"payload\.arguments"):
            await submit(suite, run_id, "approval_00000000", {"decision": "edit"})


async def test_a_waiting_run_has_state_waiting_and_does_not_use_up_its_time(serve: Serve) -> None:
    async with serve(CONFIRM, ANSWER, budget={"timeoutMs": 400}, **LISTED) as suite:
        offer_form(suite, 100_000)

        async def answer(event: Event) -> None:
            await asyncio.sleep(0.8)
            assert await state(suite, event["runId"]) == "waiting"
            await submits(suite, "at last")(event)

        events = await ask(suite, ("tool.start", answer))
    assert events[-1]["type"] == "run.complete"


async def test_a_tool_running_during_a_wait_uses_up_the_runs_time(serve: Serve) -> None:
    both = call("confirm") + call("slow", index=1, call_id="b") + finish("tool_calls")
    async with serve(both, ANSWER, budget={"timeoutMs": 300}, **LISTED, **PARALLEL) as suite:
        offer_form(suite, 100_000)
        events = await ask(suite)
    assert events[-1]["error"]["code"] == "BUDGET_EXCEEDED"


async def test_a_cancel_ends_a_wait_at_once_and_the_chat_stays_usable(serve: Serve) -> None:
    async with serve(CONFIRM, ANSWER, **LISTED) as suite:
        offer_form(suite, 100_000)

        async def cancel(event: Event) -> None:
            while await state(suite, event["runId"]) != "waiting":
                await asyncio.sleep(0.01)
            async with within(0.5):
                await suite.client.cancel(event["runId"])

        events = await ask(suite, ("tool.start", cancel))
        assert events[-1]["type"] == "run.cancel"
        assert only(events, "tool.result")["result"] == '{"ok":false,"error":"cancelled"}'
        history = await read_recorded(suite, suite.run_ids[0])
        assert fold(history) == fold(events)
        assert await submit(suite, events[-1]["runId"], only(events, "tool.start")["toolId"], 1) == "expired"
        assert (await ask(suite))[-1]["type"] == "run.complete"
        assert last_result(suite) == '{"ok":false,"error":"cancelled"}'


async def test_a_submit_counts_though_its_caller_leaves_while_it_is_being_stored(serve: Serve) -> None:
    storing, stored = asyncio.Event(), asyncio.Event()

    async def slow(request: memory_pb2.AppendRequest) -> None:
        if request.lines[0].event.event.HasField("request_submit"):
            storing.set()
            await asyncio.sleep(2.0)
            stored.set()

    async with serve(CONFIRM, ANSWER, before_append=slow, **LISTED) as suite:
        offer_form(suite, 1900)

        async def answer(event: Event) -> None:
            submitting = asyncio.create_task(submit(suite, event["runId"], event["toolId"], "in time"))
            await storing.wait()
            submitting.cancel()
            await asyncio.wait([submitting])
            assert submitting.cancelled()
            assert not stored.is_set()

        events = await ask(suite, ("tool.start", answer))
        assert last_result(suite) == "in time"
    assert only(events, "request.submit")["payload"] == "in time"


async def test_a_submit_whose_commit_gets_no_reply_is_in_the_log_once(serve: Serve) -> None:
    async with serve(CONFIRM, ANSWER, **LISTED) as suite:
        offer_form(suite, 100_000)
        suite.memory.after = Refusal("request_submit", *[ProviderUnavailable("not now")] * 2)
        events = await ask(suite, ("tool.start", submits(suite, "yes")))
        history = await read_recorded(suite, suite.run_ids[0])
    assert only(history, "request.submit") == only(events, "request.submit")


async def test_parallel_calls_each_wait_for_their_own_submit(serve: Serve) -> None:
    both = call("confirm", '{"n":1}') + call("confirm", '{"n":2}', index=1, call_id="b") + finish("tool_calls")
    async with serve(both, ANSWER, **LISTED, **PARALLEL) as suite:
        offer_form(suite, 100_000)

        async def answer(event: Event) -> None:
            await submits(suite, {"to": event["toolId"]})(event)

        events = await ask(suite, *[("tool.start", answer)] * 2)
        results = {event["toolId"]: event["result"] for event in events if event["type"] == "tool.result"}
    assert {json.loads(text)["to"] for text in results.values()} == set(results)
    assert len(results) == 2


async def test_a_submit_while_the_run_ends_is_expired_and_adds_no_event(serve: Serve) -> None:
    ending = asyncio.Event()

    async def slow(request: memory_pb2.AppendRequest) -> None:
        if request.lines[-1].HasField("run"):
            ending.set()
            await asyncio.sleep(0.3)

    async with serve(CONFIRM, ANSWER, before_append=slow, **LISTED) as suite:
        offer_form(suite, 100_000)

        async def answer(event: Event) -> None:
            await suite.client.cancel(event["runId"])
            await ending.wait()
            assert await submit(suite, event["runId"], event["toolId"], "late") == "expired"

        events = await ask(suite, ("tool.start", answer))
        history = await read_recorded(suite, suite.run_ids[0])
    assert events[-1]["type"] == history[-1]["type"] == "run.cancel"
    assert events[-1]["seq"] == history[-1]["seq"]


async def test_early_submits_are_kept_up_to_a_limit() -> None:
    gates = Gates()
    for number in range(KEPT_MAX):
        assert gates.take(f"t_{number}", "") == "accepted"
    with pytest.raises(QueueFull):
        gates.take("t_more", "")
    gates.get("t_0").fulfil(Submission("1"))
    assert await gates.get("t_0").wait(1.0) == Submission("1")
    assert gates.take("t_more", "") == "accepted"
    assert gates.take("t_more", "") == "duplicate"


async def test_a_submit_being_stored_at_the_timeout_is_in_time() -> None:
    gates = Gates()
    waiting = asyncio.create_task(gates.get("t_1").wait(0.05))
    await asyncio.sleep(0)
    assert gates.take("t_1", "") == "accepted"
    await asyncio.sleep(0.1)
    gates.get("t_1").fulfil(Submission("2"))
    async with within(1):
        assert await waiting == Submission("2")


async def test_the_clock_does_not_count_waiting_time() -> None:
    clock = Clock(0.15)
    expired = asyncio.Event()
    clock.watch(expired.set)
    async with asyncio.timeout(50):
        with clock.aside(), clock.working(), clock.waiting():
            await asyncio.sleep(0.4)
            assert not expired.is_set()
        started = asyncio.get_running_loop().time()
        async with within(1.0):
            await expired.wait()
    assert asyncio.get_running_loop().time() - started > 0.05
    assert clock.left_s == 0.0


async def test_the_clock_stops_only_while_all_sub_agents_wait() -> None:
    clock = Clock(10.0)
    with ExitStack() as sub_agents:
        for entered in (clock.aside(), clock.working(), clock.working()):
            sub_agents.enter_context(entered)
        with clock.aside(), clock.working(), clock.waiting():  # The first sub-agent's call.
            before = clock.left_s
            await asyncio.sleep(0.05)
            assert clock.left_s < before - 0.03
            with clock.aside(), clock.working(), clock.waiting():  # The second sub-agent's call.
                before = clock.left_s
                await asyncio.sleep(0.05)
                assert clock.left_s == before
