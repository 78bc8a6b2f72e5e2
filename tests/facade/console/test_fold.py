"""The console's fold against the tests' own and the cases of the public one: the same events give the same state."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import orjson
import pytest

from headrace.v1 import agent_pb2
from services.runtime.json_form import event
from tests.facade.console.conftest import Opening
from tests.facade.console.scripted import FORKED, RUN, Story
from tests.order import IDS, TEXT_KINDS, fold, is_lost

pytestmark = pytest.mark.asyncio(loop_scope="session")

Event = dict[str, Any]

SCOPES = [{}, {"subagentId": "s1"}, {"subagentId": "s2"}, {"taskId": "k1"}, {"subagentId": "s1", "taskId": "k1"}]

FOLD = """async (lists) => {
    const { foldEvents } = await import('/console/events/fold.js');
    return lists.map(foldEvents);
}"""


CASES: list[dict[str, Any]] = json.loads((Path(__file__).parents[2] / "fold_cases.json").read_text())


def describe_state(state: dict[str, Any]) -> dict[str, Any]:
    """What the console's fold holds of a case's state: a call's view shows its arguments as they come."""
    left_out = {"tool": {"isComplete", "text"}, "action": {"isComplete", "text", "params"}}
    blocks = {
        key: {name: value for name, value in block.items() if name not in left_out.get(block["kind"], {"isComplete"})}
        for key, block in state["blocks"].items()
    }
    return {"blocks": blocks, "end": state["end"]}


def recorded(story: Story) -> list[Event]:
    return [orjson.loads(sent.json) for delta in story.events if (sent := event(delta)) is not None]


def a_whole_run(run_id: str = RUN) -> list[Event]:
    story = Story(run_id=run_id).reasoning("a", "\n\n", "b").call("c1", "weather", '{"city": "Paris"}')
    story.output("c1", "x").result("c1", "20°").call("c2", "x", "[]").result("c2", "no", ok=False)
    story.content("It is ", number=1).add(
        attempt_reset=agent_pb2.AttemptReset(run_id=run_id, from_seq=story.seq - 2, reason="retry")
    )
    return recorded(story.content("It is ", "20°", number=2).complete())


def a_history(events: list[Event]) -> list[Event]:
    """The events with snapshots for their blocks."""
    folded: list[Event] = []
    for key, block in fold(events)["blocks"].items():
        kind = block["kind"]
        snapshot = {"seq": 9, "type": f"{kind}.snapshot", IDS[kind]: key, "text": block["text"], "timestamp": 1}
        snapshot |= {f"{kind}Name": block["name"]} if block["name"] else {}
        snapshot |= {"toolParams": block["params"]} if block.get("params") else {}
        folded.append(snapshot)
        if "result" in block:
            folded.append(
                {"seq": 9, "type": f"{kind}.result", IDS[kind]: key} | {k: block[k] for k in ("result", "ok")}
            )
    return [*events[:2], *folded, events[-1]]


def made_up(seed: int) -> list[Event]:
    """Starts, deltas, ends, snapshots, results and resets in any order that opens a block before it is used, anywhere:
    in the run, a sub-agent or a task.
    """
    chance, events, known = random.Random(seed), list[Event](), dict[str, Event]()
    for seq in range(1, 60):
        kind = chance.choice(list(IDS))
        part = chance.choice(["start", "snapshot", "delta" if kind in TEXT_KINDS else "result", "end", "reset", "run"])
        key = f"{kind}{chance.randrange(3)}"
        base: Event = {"seq": seq, "timestamp": seq} | chance.choice(SCOPES)
        if part == "reset":
            reset = base | {"type": "attempt.reset", "fromSeq": chance.randrange(seq)}
            events.append(reset)
            known = {key: begun for key, begun in known.items() if not is_lost(begun, reset)}
        elif part == "run" and chance.random() < 0.2:
            events.append(base | {"type": "run.start", "runId": str(seq)})
            known = {}
        elif part in ("start", "snapshot") or key in known:
            part = "start" if part == "run" else part
            body: Event = {"result": "r", "ok": True, "toolParams": {"a": [1]}, "toolName": "n"}
            body = {"delta": "d", "text": "t"} if kind in TEXT_KINDS else body
            events.append(base | body | {"type": f"{kind}.{part}", IDS[kind]: key})
            if part in ("start", "snapshot"):
                known[key] = events[-1]
    return [*events, {"seq": 60, "type": "run.complete", "timestamp": 60, "usage": {"inputTokens": 1}}]


async def test_it_gives_what_the_tests_fold_gives(opening: Opening) -> None:
    run = a_whole_run()
    lists = [run, a_history(run), run + a_whole_run(FORKED), *(made_up(seed) for seed in range(200))]
    async with opening() as console:
        assert await console.page.evaluate(FOLD, lists) == [fold(events) for events in lists]


async def test_a_delta_of_an_unknown_block_is_left_out(opening: Opening) -> None:
    events = [{"seq": 1, "type": "content.delta", "contentId": "x", "delta": "a"}, {"seq": 2, "type": "some.thing"}]
    async with opening() as console:
        assert await console.page.evaluate(FOLD, [events]) == [{"blocks": {}, "end": None}]


async def test_the_events_of_a_case_lead_to_its_state(opening: Opening) -> None:
    async with opening() as console:
        states = await console.page.evaluate(FOLD, [case["events"] for case in CASES])
    for state in states:
        for block in state["blocks"].values():
            if block["kind"] in ("tool", "action"):
                del block["text"]
    assert {case["name"]: state for case, state in zip(CASES, states, strict=True)} == {
        case["name"]: describe_state(case["state"]) for case in CASES
    }
