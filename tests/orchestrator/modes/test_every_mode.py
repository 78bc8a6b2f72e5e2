"""Rules for every run in every mode: ordered events, one end, paired requests, a readable log, and a usable chat."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeAlias

import pytest

from headrace.errors import Overloaded
from headrace.v1 import llm_pb2
from tests.support.orchestrator import MODEL, Serve, Suite, as_json, plans, run_of, submit, tool
from tests.support.orchestrator.steps import Step, answer, call, content, finish, reasoning
from tests.support.order import TERMINAL, Event, check_order
from tests.support.tiers import check_each

FORM = "form"

MODES: dict[str, dict[str, Any]] = {
    "ONESHOT": {"mode": "ONESHOT", "plain": {}},
    "REACT": {"mode": "REACT"},
    "PLAN_EXECUTE": plans.agent(),
}

TOOLS: dict[str, dict[str, Any]] = {
    "no tools": {"toolConfig": None},
    "tools": {"toolConfig": {"backends": ["look"]}},
    "required": {"toolConfig": {"backends": ["look"]}, "toolPolicy": "REQUIRE"},
    "a form": {"toolConfig": {"frontends": [FORM]}},
    "checked": {"toolConfig": {"backends": ["look"]}, "verify": "SECOND_PASS_FIX", "output": "REASONING_SUMMARY"},
}


def take_turn(request: llm_pb2.ChatRequest) -> list[Step]:
    """Act as a model that calls the first tool once, if there is one, and then answers."""
    tool_names = [offered.name for offered in request.tools if not offered.name.startswith("_plan_")]
    if tool_names and request.messages[-1].role != "tool" and request.tool_choice in ("auto", "required"):
        return [*content("Let me look."), *call(tool_names[0]), *finish("tool_calls")]
    return [*reasoning("hm"), *content("All ", "good."), *finish()]


PLAN_EVENTS = 40
"""Runs without a plan have fewer events."""

OnEvent: TypeAlias = Callable[[list[Event]], Awaitable[None]]
"""Called after each event with all events so far, to act as a person."""


class Model:
    """A scripted model that fails at one chosen turn."""

    def __init__(self, suite: Suite) -> None:
        self._planning = plans.model(plans.add("one", "two"), work=take_turn)
        self.turns = 0
        self.fails_at = -1
        suite.llm.reply = self.reply
        suite.llm.aside["reasoning_summary"] = answer("Thought.")

    def reply(self, request: llm_pb2.ChatRequest) -> list[Step]:
        self.turns += 1
        if self.turns == self.fails_at:
            return [*content("Ha"), Overloaded("busy")]
        is_planned = request.stage in ("plan", "execute", "summary")
        return self._planning(request) if is_planned else take_turn(request)


async def do_nothing(_events: list[Event]) -> None:
    pass


async def run(suite: Suite, on_event: OnEvent = do_nothing, agent: str = "react") -> list[Event]:
    """Run a query in a new chat, and check the run; return its events."""
    events: list[Event] = []
    async with suite.client.ask("hello", agent_key=agent) as deltas:
        async for delta in deltas:
            events.append(as_json(delta))
            await on_event(events)
    await check_run(suite, events)
    return events


def without_time(event: Event) -> Event:
    return {name: value for name, value in event.items() if name != "timestamp"}


async def check_run(suite: Suite, events: list[Event]) -> None:
    """Check what must be true of every run."""
    check_order(events)
    assert sum(event["type"] in TERMINAL for event in events) == 1
    plans.check_pairs(suite)
    chat_id = events[0]["chatId"]
    history = [as_json(event) for event in (await suite.client.chat(chat_id)).events]
    assert without_time(history[-1]) == without_time(events[-1]), "the log has the same end as the readers"
    suite.llm.requests.clear()


async def check_next_query(suite: Suite, events: list[Event]) -> None:
    """Check that the chat takes another query after `events`, and that no call in its request is open."""

    model = suite.llm.reply
    suite.llm.reply = lambda _: answer("Next.")
    suite.chat_id = events[0]["chatId"]
    events_after = await suite.ask("and now?", agent="oneshot")
    plans.check_pairs(suite)
    assert events_after[-1]["type"] == "run.complete"
    suite.llm.requests.clear()
    suite.llm.reply = model


def for_each_mode(*kinds: str, each: int = 1) -> pytest.MarkDecorator:
    cases = [(mode, kind) for mode in MODES for kind in kinds]
    return pytest.mark.parametrize(("mode", "kind"), check_each(cases, each=each))


def agent(mode: str, kind: str, **changes: Any) -> dict[str, Any]:
    """Return the fields of an agent with this mode and these tools."""
    given = MODES[mode] | TOOLS[kind] | changes
    return given | ({"toolPolicy": "REQUIRE"} if kind == "required" else {})


ALL_KINDS = ("no tools", "tools", "required", "checked")


@for_each_mode(*ALL_KINDS)
async def test_an_undisturbed_run_completes(serve: Serve, mode: str, kind: str) -> None:
    async with serve(**agent(mode, kind)) as suite:
        Model(suite)
        events = await run(suite)
        await check_next_query(suite, events)
    assert events[-1]["type"] == "run.complete"
    assert any(event["type"] == "tool.result" for event in events) == (kind != "no tools" or mode == "PLAN_EXECUTE")


@for_each_mode(*ALL_KINDS, each=3)
async def test_a_model_error_at_any_turn_ends_the_run_in_order(serve: Serve, mode: str, kind: str) -> None:
    async with serve(**agent(mode, kind)) as suite:
        model = Model(suite)
        await run(suite)
        turns = model.turns
        for model.fails_at in range(1, turns + 1):
            model.turns = 0
            events = await run(suite)
            assert events[-1]["type"] in ("run.error", "run.complete")
            await check_next_query(suite, events)


@for_each_mode(*ALL_KINDS, each=3)
async def test_a_budget_used_up_at_any_call_ends_the_run_in_order(serve: Serve, mode: str, kind: str) -> None:
    limits = range(1, 9 if mode == "PLAN_EXECUTE" else 5)
    own = {"modelConfig": MODEL, "react": {}}
    agents = {f"b{calls}": own | agent(mode, kind, budget={"maxModelCalls": calls}) for calls in limits}
    async with serve(beside=agents) as suite:
        Model(suite)
        for calls in limits:
            events = await run(suite, agent=f"b{calls}")
            assert events[-1]["usage"]["modelCalls"] <= calls + 1, "one extra call is allowed for the answer"
            await check_next_query(suite, events)


@for_each_mode("tools", "checked")
async def test_a_cancel_at_any_event_ends_the_run_in_order(serve: Serve, mode: str, kind: str) -> None:
    async with serve(**agent(mode, kind)) as suite:
        Model(suite)
        count = len(await run(suite))
        # The third event is the first with the run's id; a plan has so many that a part of them is enough.
        for number in range(3, count, 1 if count < PLAN_EVENTS else 4):
            events = await run(suite, partial(cancel_at, suite, number))
            assert events[-1]["type"] in ("run.cancel", "run.complete")
            await check_next_query(suite, events)


async def cancel_at(suite: Suite, number: int, events: list[Event]) -> None:
    if len(events) == number:
        await suite.client.cancel(run_of(events))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("when", ["early", "in time", "twice", "late"])
async def test_a_submit_early_late_or_twice_gets_the_right_status(serve: Serve, mode: str, when: str) -> None:
    statuses: list[str] = []
    async with serve(**agent(mode, "a form")) as suite:
        suite.tools.tools.append(tool(FORM, "frontend", timeout_ms=100 if when == "late" else 5000))
        Model(suite)
        moment = {"early": "tool.start", "late": "tool.result"}.get(when, "tool.end")

        async def person(events: list[Event]) -> None:
            event = events[-1]
            if event["type"] == moment and event["toolId"].startswith("t_"):
                for _ in range(2 if when == "twice" else 1):
                    statuses.append(await submit(suite, run_of(events), event["toolId"], {"ok": 1}))

        events = await run(suite, person)
        await check_next_query(suite, events)
    expected = {"early": {"accepted"}, "in time": {"accepted"}, "twice": {"accepted", "duplicate"}, "late": {"expired"}}
    assert set(statuses) == expected[when]
    assert events[-1]["type"] == "run.complete"
