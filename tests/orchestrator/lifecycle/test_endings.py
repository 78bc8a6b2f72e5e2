"""Every run has one end, the same for readers and in the log, whatever memory refuses and whenever callers leave."""

import asyncio
import gc
from collections import Counter
from typing import Any

import pytest

from headrace.errors import ChatBusy, HeadraceError, Overloaded, ProviderUnavailable, QueueFull
from headrace.v1 import memory_pb2
from services.orchestrator.peers.stored_runs import fold_runs
from services.orchestrator.run.answers.answer import Answer
from services.orchestrator.run.run import Run
from services.orchestrator.run.scope import Scope
from tests.support.orchestrator import Serve, Suite, as_json, ask_for, read, replica
from tests.support.orchestrator.crashes import restart
from tests.support.orchestrator.runs import read_recorded, unfinished_runs, wait_for_ends
from tests.support.orchestrator.steps import ANSWER, Step, answer, call, call_tool, content, finish, reasoning
from tests.support.orchestrator.watched_memory import Refusal, pass_on
from tests.support.order import TERMINAL, Event, check_order, fold
from tests.support.timing import within
from tests.support.waiting import wait_until

LOOK = call_tool("look", '{"at":1}')
CHAT = "5f0c0000-0000-4000-8000-000000000010"

MODES: dict[str, tuple[str, list[list[Step]], dict[str, Any]]] = {
    "oneshot": ("oneshot", [reasoning("hm") + ANSWER], {}),
    "react": ("react", [reasoning("hm") + LOOK, reasoning("so") + ANSWER], {}),
    "react, several calls": (
        "react",
        [LOOK[:-2] + call("look", "[1]", index=1, call_id="b") + finish("tool_calls"), ANSWER],
        {"react": {"parallelToolCalls": True}},
    ),
    "arguments that are no object": ("react", [call_tool("look", "17"), ANSWER], {}),
    "a missing tool": ("react", [LOOK, ANSWER], {"toolConfig": {"backends": ["look", "gone"]}}),
    "no answer": ("oneshot", [reasoning("hm") + finish()], {}),
    "an error in the text": ("oneshot", [[*content("Hel"), Overloaded("full")]], {}),
    "an error in a call": ("react", [[*call("look", '{"at"'), Overloaded("full")]], {}),
    "a cut answer": ("react", [content("Hel")], {}),
    "out of time": ("react", [[*reasoning("hm"), *content("Hel"), 3600.0]], {"budget": {"timeoutMs": 200}}),
    "out of time in a tool": ("react", [call_tool("slow")], {"budget": {"timeoutMs": 200}}),
    "no tool calls left": ("react", [LOOK], {"budget": {"maxToolCalls": 0}}),
    "no tokens left": ("react", [LOOK], {"budget": {"maxTokens": 1}}),
    "a slow model": ("react", [[*content("Hel"), 3600.0]], {"budget": {"modelTimeoutMs": 200}}),
}


def refuse_all(kind: str, error: Exception) -> Refusal:
    """Refuse every append of this kind of line."""
    return Refusal(kind, *[error] * 1000)


@pytest.mark.parametrize("case", MODES)
async def test_the_log_folds_to_what_was_streamed(serve: Serve, case: str) -> None:
    agent, turns, changes = MODES[case]
    async with serve(*turns, **changes) as suite:
        live = await suite.ask(agent=agent)
        history = await read_recorded(suite, suite.run_ids[0])
    assert fold(history) == fold(live)
    assert len({event["seq"] for event in history}) == len(history)


async def test_a_stalled_model_and_a_run_out_of_time_have_different_errors(serve: Serve) -> None:
    async with serve([*content("Hel"), 3600.0], budget={"modelTimeoutMs": 150}) as suite:
        assert (await suite.ask())[-1]["error"]["code"] == "STREAM_STALLED"
    async with serve([*content("Hel"), 3600.0], budget={"timeoutMs": 150}) as suite:
        assert (await suite.ask())[-1]["error"]["code"] == "BUDGET_EXCEEDED"
        assert suite.llm.open == 0, "the provider's stream is closed"


async def test_a_model_that_keeps_streaming_does_not_time_out(serve: Serve) -> None:
    spoken = [step for word in range(8) for step in (*content(f"{word} "), 0.25)]
    async with serve([*spoken, *finish()], budget={"modelTimeoutMs": 1000}) as suite:
        end = (await suite.ask())[-1]
    assert end["type"] == "run.complete"


@pytest.mark.parametrize("error", [ValueError("a bug in memory"), TimeoutError()])
async def test_an_end_that_memory_refuses_is_not_sent_and_harms_no_other_run(serve: Serve, error: Exception) -> None:
    async with serve(ANSWER) as suite:
        suite.memory.before = refuse_all("run", error)
        assert not TERMINAL & {event["type"] for event in await ask_until_cut(suite)}
        suite.memory.before = pass_on
        suite.chat_id = CHAT
        assert (await suite.ask(agent="oneshot"))[-1]["type"] == "run.complete"


async def test_an_end_is_retried_until_memory_is_back(serve: Serve) -> None:
    refuse_twice = Refusal("run", *[ProviderUnavailable("not now")] * 2)
    async with serve(ANSWER, before_append=refuse_twice) as suite:
        assert (await suite.ask(agent="oneshot"))[-1]["type"] == "run.complete"
        await wait_for_ends(suite)


async def test_an_append_that_memory_refuses_temporarily_is_retried(serve: Serve) -> None:
    refused: Counter[str] = Counter()

    async def refuse_twice(request: memory_pb2.AppendRequest) -> None:
        refused[request.request_id] += not request.lines[0].HasField("query")
        if 0 < refused[request.request_id] < 3:
            raise Overloaded("the disk is behind")

    async with serve(LOOK, ANSWER, before_append=refuse_twice) as suite:
        live = await suite.ask()
        assert live[-1]["type"] == "run.complete"
        assert len(suite.tools.requests) == 1
        assert fold(await read_recorded(suite, suite.run_ids[0])) == fold(live)


async def test_a_run_whose_appends_stay_refused_ends_overloaded(serve: Serve) -> None:
    refuse = Refusal("step", *[Overloaded("the disk is behind")] * 4)
    async with serve(LOOK, ANSWER, before_append=refuse) as suite:
        live = await suite.ask()
        assert live[-1]["error"]["code"] == "OVERLOADED"
        assert not suite.tools.requests
        assert (await suite.ask("again"))[-1]["type"] == "run.complete"


async def test_a_commit_whose_reply_was_lost_is_in_the_log_once(serve: Serve) -> None:
    lost: set[str] = set()

    async def lose(request: memory_pb2.AppendRequest) -> None:
        if request.lines[0].HasField("step") and request.request_id not in lost:
            lost.add(request.request_id)
            raise ProviderUnavailable("the answer is lost")

    async with serve(reasoning("hm") + LOOK, ANSWER) as suite:
        suite.memory.after = lose
        live = await suite.ask()
        assert live[-1]["error"]["code"] == "PROVIDER_UNAVAILABLE"
        assert fold(await read_recorded(suite, suite.run_ids[0])) == fold(live)


@pytest.mark.parametrize("moment", ["step", "event", "run"])
async def test_cancels_during_a_commit_give_one_end(serve: Serve, moment: str) -> None:
    reached = asyncio.Event()

    async def hold(request: memory_pb2.AppendRequest) -> None:
        if request.lines[-1].HasField(moment) and not reached.is_set():  # type: ignore[arg-type]
            reached.set()
            await asyncio.sleep(0.2)

    turns = [reasoning("hm") + LOOK, ANSWER]
    async with serve(*turns, before_append=hold, toolConfig={"backends": ["look", "gone"]}) as suite:
        asking = asyncio.create_task(suite.ask(chat_id=CHAT))
        await reached.wait()
        run_id = (await unfinished_runs(suite))[0].run_id
        await asyncio.gather(*(suite.client.cancel(run_id) for _ in range(2)))
        live = await asking
        history = await read_recorded(suite, run_id)
        assert live[-1]["type"] == ("run.complete" if moment == "run" else "run.cancel")
        assert fold(history) == fold(live)
        assert Counter(event["seq"] for event in history).most_common(1)[0][1] == 1
        assert (await suite.ask("again"))[-1]["type"] == "run.complete"


async def test_a_queued_run_can_be_cancelled_while_the_first_is_running(serve: Serve) -> None:
    go_on = asyncio.Barrier(2)
    async with serve([*content("Hel"), go_on, *ANSWER], ANSWER) as suite:
        first = asyncio.create_task(suite.ask(agent="oneshot", chat_id=CHAT))
        await wait_until(lambda: suite.llm.open)
        second = asyncio.create_task(suite.ask(agent="oneshot", chat_id=CHAT))
        while len(runs := await unfinished_runs(suite)) < 2:
            await asyncio.sleep(0.01)
        await suite.client.cancel(runs[1].run_id)
        assert (await second)[-1]["type"] == "run.cancel"
        assert not first.done()
        await go_on.wait()
        assert (await first)[-1]["type"] == "run.complete"


@pytest.mark.parametrize(("on_disconnect", "end"), [("continue", "run.complete"), ("cancel", "run.cancel")])
async def test_a_run_whose_caller_leaves_before_the_query_is_stored_still_ends(
    serve: Serve, on_disconnect: str, end: str
) -> None:
    storing, stored = asyncio.Event(), asyncio.Event()

    async def slow(request: memory_pb2.AppendRequest) -> None:
        if request.lines[0].HasField("query"):
            storing.set()
            await asyncio.sleep(0.2)

    async def note(request: memory_pb2.AppendRequest) -> None:
        if request.lines[0].HasField("query"):
            stored.set()

    answer_s = 0.3 if on_disconnect == "continue" else 3600.0
    async with serve([*content("Hel"), answer_s, *ANSWER]) as suite:
        suite.memory.before, suite.memory.after = slow, note
        async with suite.client.ask("x", chat_id=CHAT, on_disconnect=on_disconnect) as deltas:
            asking = asyncio.ensure_future(anext(deltas))
            await storing.wait()
            assert not asking.done()
            asking.cancel()
            await asyncio.wait([asking])
        await stored.wait()
        await wait_for_ends(suite)
        suite.chat_id = CHAT
        chat = [as_json(event) for event in (await suite.client.chat(CHAT)).events]
        assert [event["type"] for event in chat if event["type"] in TERMINAL] == [end]


async def count_outcomes(suite: Suite, count: int, **fields: Any) -> Counter[str]:
    """Send `count` queries at the same moment; count their outcomes: errors by name, or "accepted"."""
    outcomes: Counter[str] = Counter()

    async def one(number: int) -> None:
        try:
            async with suite.client.ask("hi", agent_key="oneshot", on_disconnect="cancel", **fields) as deltas:
                await anext(deltas)
                outcomes["accepted"] += 1
                await asyncio.sleep(0.3)
        except HeadraceError as error:
            outcomes[type(error).__name__] += 1

    await asyncio.gather(*map(one, range(count)))
    return outcomes


async def test_limits_apply_to_simultaneous_queries(serve: Serve) -> None:
    async with serve([*content("Hel"), 3600.0], runs_max=20) as suite:
        assert await count_outcomes(suite, 12, chat_id=CHAT) == {"accepted": 9, QueueFull.__name__: 3}
        await wait_for_ends(suite)
        assert await count_outcomes(suite, 3, chat_id=CHAT, when_busy="reject") == {"accepted": 1, ChatBusy.__name__: 2}
        await wait_for_ends(suite)
        assert await count_outcomes(suite, 23) == {"accepted": 20, Overloaded.__name__: 3}


async def test_simultaneous_repetitions_of_a_query_are_one_run(serve: Serve) -> None:
    async with serve([*content("Hel"), 0.2, *ANSWER]) as suite:
        asking = [ask_for(suite.client, agent_key="oneshot", chat_id=CHAT, request_id="r") for _ in range(12)]
        for events in await asyncio.gather(*asking):
            check_order(events)
            assert events[-1]["type"] == "run.complete"
        assert len(suite.llm.requests) == 1


async def test_of_simultaneous_interrupting_queries_one_completes(serve: Serve) -> None:
    async with serve([*content("Hel"), 3600.0], [*content("Hel"), 0.3, *ANSWER]) as suite:
        first = asyncio.create_task(suite.ask(agent="oneshot", chat_id=CHAT))
        await wait_until(lambda: suite.llm.open)
        asking = [suite.ask(agent="oneshot", chat_id=CHAT, when_busy="interrupt") for _ in range(3)]
        ends = [events[-1]["type"] for events in await asyncio.gather(first, *asking)]
    assert sorted(ends) == ["run.cancel"] * 3 + ["run.complete"]


async def test_a_repeated_query_interrupts_nothing(serve: Serve) -> None:
    async with serve(ANSWER, [*content("Hel"), 0.5, *ANSWER]) as suite:
        first_run = await suite.ask(agent="oneshot", chat_id=CHAT, request_id="r")
        running = asyncio.create_task(suite.ask(agent="oneshot", chat_id=CHAT))
        await wait_until(lambda: suite.llm.open)
        repeated = await ask_for(suite.client, chat_id=CHAT, request_id="r", when_busy="interrupt")
        assert fold(repeated) == fold(first_run)
        assert (await running)[-1]["type"] == "run.complete"


async def test_a_model_call_that_was_not_made_is_not_counted(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        suite.memory.context_error = ProviderUnavailable("not now")
        events = await suite.ask()
    assert events[-1]["error"]["code"] == "PROVIDER_UNAVAILABLE"
    assert events[-1]["usage"]["modelCalls"] == 0


async def test_attaching_to_a_live_run_at_every_seq_gives_the_same_result(serve: Serve) -> None:
    paced: list[Step] = [step for delta in reasoning(*"abc") + LOOK for step in (delta, 0.02)]
    async with serve(paced, [step for delta in ANSWER for step in (delta, 0.02)]) as suite:
        live: list[Event] = []
        readers: dict[int, asyncio.Task[list[Event]]] = {}
        async with suite.client.ask("hi", agent_key="react", chat_id=CHAT) as deltas:
            async for delta in deltas:
                live.append(as_json(delta))
                if len(live) > 2:
                    seq = live[-1]["seq"]
                    readers[seq] = asyncio.create_task(read(suite.client, live[2]["runId"], seq))
        check_order(live)
        for seq, reader in readers.items():
            assert fold(live[:seq] + await reader) == fold(live)


async def test_stopping_disconnects_readers_even_if_memory_hangs(serve: Serve) -> None:
    async def stick(request: memory_pb2.AppendRequest) -> None:
        await asyncio.sleep(3600)

    async with serve([*content("Hel"), 3600.0]) as suite:
        asking = [asyncio.create_task(ask_until_cut(suite)) for _ in range(2)]
        await wait_until(lambda: suite.llm.open)
        await asyncio.sleep(0.1)
        suite.memory.before = stick
        async with within(8):
            await suite.stop()
        for events in await asyncio.gather(*asking):
            assert not TERMINAL & {event["type"] for event in events}


async def test_stopping_leaves_running_and_queued_runs_to_the_next_process(serve: Serve) -> None:
    async with serve([*content("Hel"), 3600.0], ANSWER) as suite:
        asking = [asyncio.create_task(ask_until_cut(suite)) for _ in range(2)]
        await wait_until(lambda: suite.llm.open)
        await asyncio.sleep(0.1)
        await suite.stop()
        runs_before = await asyncio.gather(*asking)
        runs = await unfinished_runs(suite)
        assert [(run.owner, run.lease_expires_at) for run in runs] == [("127.0.0.1:0", 0)] * 2
        async with restart(suite) as client:
            for events_before in runs_before:
                assert not TERMINAL & {event["type"] for event in events_before}
                events_after = await read(client, events_before[-1]["runId"], events_before[-1]["seq"])
                reset = {
                    "type": "attempt.reset",
                    "seq": 1_000_001,
                    "runId": events_before[-1]["runId"],
                    "reason": "HANDED_OVER",
                }
                assert events_after[0] == events_after[0] | reset
                assert {*events_after[0]} == {*reset, "timestamp", "fromSeq"}
                assert events_after[0]["fromSeq"] in (2, 3), "the seq of its run.start"
                blocks = fold(events_after)["blocks"].values()
                assert [block["text"] for block in blocks] == ["All good."], (
                    "read live, or from the log if the run has ended already"
                )
                assert events_after[-1]["type"] == "run.complete"


async def ask_until_cut(suite: Suite, agent: str = "oneshot", chat_id: str = CHAT) -> list[Event]:
    """Ask, and read until the stream ends; the last event gets the run's id."""
    events = await ask_for(suite.client, "hi", agent_key=agent, chat_id=chat_id)
    runs = await unfinished_runs(suite)
    run_id = next((event["runId"] for event in events if "runId" in event), runs[-1].run_id)
    return [*events[:-1], events[-1] | {"runId": run_id}]


async def leave_unfinished(suite: Suite, chat_id: str) -> str:
    """Leave a run whose end memory has refused; return its id."""
    suite.memory.before = refuse_all("run", ValueError("a bug in memory"))
    events = await ask_until_cut(suite, "react", chat_id)
    suite.memory.before, suite.chat_id = pass_on, chat_id
    return events[-1]["runId"]


async def test_attaching_to_a_run_without_owner_ends_it(serve: Serve) -> None:
    async with serve(LOOK, ANSWER) as suite:
        run_id = await leave_unfinished(suite, CHAT)
        for last_seq in (0, 5, 40):
            events = await read(suite.client, run_id, last_seq)
            assert [event["type"] for event in events[-2:]] == ["attempt.reset", "run.error"]
            assert [event["seq"] for event in events[-2:]] == [1_000_001, 1_000_002]
        assert fold(events)["end"] == fold(await read_recorded(suite, run_id))["end"]
        assert (await suite.ask("again"))[-1]["type"] == "run.complete"


async def test_a_run_whose_end_was_refused_gets_one_without_a_reader(serve: Serve) -> None:
    async with serve(LOOK, ANSWER) as suite, replica(suite, "later") as later:
        await suite.stop()
        suite.client = later.client
        run_id = await leave_unfinished(suite, CHAT)
        await wait_for_ends(suite)
        assert (await read(suite.client, run_id))[-1]["error"]["code"] == "INTERNAL"


async def test_a_runs_updated_at_is_the_time_of_its_last_event(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        await suite.ask(agent="oneshot")
        await asyncio.sleep(0.05)
        await suite.ask(agent="oneshot")
        first = await read_recorded(suite, suite.run_ids[0])
        runs = fold_runs((await suite.client.chat(suite.chat_id)).events)
    assert runs[0].updated_at == first[-1]["timestamp"]


TURNS = reasoning("hm") + call("look", '{"at":1}') + finish("tool_calls"), answer("All ", "good.")


def count_objects() -> int:
    return sum(isinstance(candidate, Run | Scope | Answer) for candidate in gc.get_objects())


async def test_ended_runs_are_freed_without_a_collection(serve: Serve) -> None:
    gc.collect()
    before = count_objects()
    gc.disable()
    try:
        async with serve(*TURNS) as suite:
            await suite.ask()
            async with within(5.0):
                await wait_until(lambda: count_objects() <= before)
    finally:
        gc.enable()
