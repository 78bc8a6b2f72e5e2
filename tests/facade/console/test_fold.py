"""The fold of @headrace/client, which the console uses, reaches the same state as the fold in Python."""

import json
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import orjson
import pytest

from headrace.event_json import parse_event
from headrace.runs.fold import fold_events
from headrace.v1 import agent_pb2
from services.runtime.formats.json_form import event
from tests.support.console.scripted import FORKED, RUN, Story
from tests.support.folds import describe_fold
from tests.support.order import IDS, TEXT_KINDS, fold, is_lost

pytestmark = pytest.mark.skipif(
    shutil.which("node") is None, reason="NOTICE: Node is not installed: the console's fold is NOT tried"
)

Event = dict[str, Any]

SCOPES = [{}, {"subagentId": "s1"}, {"subagentId": "s2"}, {"taskId": "k1"}, {"subagentId": "s1", "taskId": "k1"}]

TEXT: Event = {"delta": "d", "text": "t"}
TOOL: Event = {"result": "r", "ok": True, "toolParams": {"a": [1]}, "arguments": {"a": ["1"]}, "toolName": "n"}
ACTION: Event = {"result": "r", "arguments": {"a": [1]}, "actionName": "n"}
BODIES = {"reasoning": TEXT, "content": TEXT, "tool": TOOL, "action": ACTION}
"""What events of a kind may have; each part takes what is its own."""

ROOT = Path(__file__).parents[3]
FOLD = """
    const { foldEvents } = await import(process.argv[1]);
    const { readFileSync } = await import("node:fs");
    const states = JSON.parse(readFileSync(0)).map((events) => foldEvents(events).toState());
    console.log(JSON.stringify(states));
"""

CASES: list[dict[str, Any]] = json.loads((ROOT / "tests/fold_cases.json").read_text())


def fold_in_python(events: list[Event]) -> dict[str, Any]:
    return describe_fold(fold_events(parse_event(encode_compactly(event)) for event in events))


def encode_compactly(event: Event) -> str:
    """Encode an event as the server does; JavaScript encodes its JSON values alike."""
    return json.dumps(event, ensure_ascii=False, separators=(",", ":"))


def list_events(story: Story) -> list[Event]:
    return [orjson.loads(sent.json) for delta in story.events if (sent := event(delta)) is not None]


def make_run(run_id: str = RUN) -> list[Event]:
    story = Story(run_id=run_id).reasoning("a", "\n\n", "b").call("c1", "weather", '{"city": "Paris"}')
    story.output("c1", "x").result("c1", "20°").call("c2", "x", "[]").result("c2", "no", ok=False)
    story.content("It is ", number=1).add(
        attempt_reset=agent_pb2.AttemptReset(run_id=run_id, from_seq=story.seq - 2, reason="retry")
    )
    return list_events(story.content("It is ", "20°", number=2).complete())


def make_history(events: list[Event]) -> list[Event]:
    """Return the events with each block replaced by its snapshot."""
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


def make_random_events(seed: int) -> list[Event]:
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
            known = {key: start for key, start in known.items() if not is_lost(start, reset)}
        elif part == "run" and chance.random() < 0.2:
            events.append(base | {"type": "run.start", "runId": str(seq)})
            known = {}
        elif part in ("start", "snapshot") or key in known:
            part = "start" if part == "run" else part
            events.append(base | BODIES[kind] | {"type": f"{kind}.{part}", IDS[kind]: key})
            if part in ("start", "snapshot"):
                known[key] = events[-1]
    usage = {"inputTokens": 1, "outputTokens": 0, "modelCalls": 0, "toolCalls": 0}
    end = {"type": "run.complete", "runId": "r", "finishReason": "stop", "usage": usage}
    return [*events, {"seq": 60, "timestamp": 60} | end]


def fold_in_javascript(lists: list[list[Event]]) -> list[dict[str, Any]]:
    module = ROOT / "services/facade/console/static/client/fold.js"
    command = ["node", "--experimental-default-type=module", "--input-type=module", "-e", FOLD, str(module)]
    return json.loads(subprocess.run(command, input=json.dumps(lists).encode(), capture_output=True, check=True).stdout)


def test_the_javascript_fold_equals_the_python_fold() -> None:
    run = make_run()
    lists = [run, make_history(run), run + make_run(FORKED), *(make_random_events(seed) for seed in range(200))]
    for events, state in zip(lists, fold_in_javascript(lists), strict=True):
        assert state == fold_in_python(events)


def test_the_events_of_a_case_fold_to_its_state() -> None:
    states = fold_in_javascript([case["events"] for case in CASES])
    for case, state in zip(CASES, states, strict=True):
        assert state == case["state"], case["name"]
        assert list(state["blocks"]) == list(case["state"]["blocks"])
