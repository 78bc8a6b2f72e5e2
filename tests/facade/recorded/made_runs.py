"""Runs made by a seed: each event type, with every field from its descriptor, in orders that a run may have.

A run is a list of scenes, such as a block of text, a call, a gate or a plan. The run's own scenes follow each other;
those of sub-agents and tasks interleave with them.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from headrace.v1 import agent_pb2
from services.runtime.formats.json_form import rules_of
from tests.facade.recorded.recorded_run import CHAT, RUN, RecordedRun, number_events

Delta = agent_pb2.AgentDelta
Scene: TypeAlias = list[Delta]

TEXTS = ["", " ", "\n\n", "The mill ", "is open.", '"quoted" \\ ', "水车 ", "🧭", "</script>\r\n", "a|b", "\u2028\x00"]
PIECES = [*TEXTS[1:5], "snow, ", "20 °C", " and so on"]
JSONS = ['{"city":"Paris"}', '{"n":123456789012345678901, "x":[1e2,null]}', "{}", '{"answer":"yes"}']
ARGUMENTS = ['{"ci', 'ty":', ' "Pa', 'ris"', "}"]
WORDS = ["weather", "pay", "mill", "look"]
SCHEMAS = [
    '{"type":"object","properties":{"choice":{"type":"string"}},"required":["choice"]}',
    '{"type":"object","properties":{"at":{"type":"array"}}}',
    "true",
]
REASONS = ["stop", "stop", "length", "content_filter", "budget", "steps", "stuck", "of a newer server"]
FAILURES = ["OVERLOADED", "PROVIDER_UNAVAILABLE", "INVALID_REQUEST", "OF_A_NEWER_SERVER"]
WAITS = [
    *(["approval"], ["form"], ["question"], ["credential"], ["client"]),
    *(["client", "client"], ["approval", "form"], ["approval", "client"]),
]
UNKNOWN = b"\xba\x3e\x06\x0a\x04what"
"""Field 999 of a message, as a newer server sets it."""


class RunMaker:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._ids = 0
        self._blocks = 0

    def make_run(self) -> tuple[list[Delta], bool]:
        """Return the events of a run, and whether it waits at their end."""
        rng = self._random
        opening = self._open_run()
        own = [scene for _ in range(rng.randint(1, 7)) for scene in self._make_scenes({})]
        tracks: list[list[Delta]] = [[delta for scene in own for delta in scene]]
        if rng.random() < 0.3:
            tracks += self._make_plan()
        if rng.random() < 0.3:
            tracks += self._make_subagents()
        body = [*self._interleave(tracks)]
        is_waiting = rng.random() < 0.15
        end = self._make_wait() if is_waiting else [*self._make_text({}, "content"), self._make_end()]
        return [*opening, *body, *end], is_waiting

    def _open_run(self) -> Scene:
        opening = [self.make("request_query", chat_id=CHAT, request_id="q-1", role="user")]
        if self._random.random() < 0.6:
            opening.append(self.make("chat_start", chat_id=CHAT))
        return [*opening, self.make("run_start", run_id=RUN, chat_id=CHAT, agent_key="helper")]

    def _make_end(self) -> Delta:
        rng = self._random
        kind = rng.choices(["run_complete", "run_error", "run_cancel"], [7, 2, 1])[0]
        if kind == "run_complete":
            return self.make(kind, run_id=RUN, finish_reason=rng.choice(REASONS))
        end = self.make(kind, run_id=RUN)
        if kind == "run_error":
            end.run_error.error.code = rng.choice(FAILURES)
        return end

    def _make_scenes(self, where: dict[str, str]) -> list[Scene]:
        """Return a scene, or several that belong together, in a scope."""
        scenes: list[tuple[int, Callable[[], list[Scene]]]] = [
            (5, lambda: [self._make_text(where, "content")]),
            (3, lambda: [self._make_text(where, "reasoning")]),
            (4, lambda: [self._make_call(where)]),
            (2, lambda: [self._make_calls(where)]),
            (2, lambda: [self._make_action(where)]),
            (2, lambda: [self._make_gate(where)]),
            (1, lambda: [self._make_reset(where)]),
            (1, lambda: [self._make_snapshots(where)]),
            (2, lambda: [self._make_news(where)]),
            (1, lambda: [self._make_compaction(where)]),
            (1, lambda: [[self.make_unknown(where)]]),
        ]
        weights, makers = zip(*scenes, strict=True)
        return self._random.choices(makers, weights)[0]()

    def _make_text(self, where: dict[str, str], kind: str) -> Scene:
        rng, block_id = self._random, self._name_block(kind)
        pieces = rng.choices(PIECES if rng.random() < 0.8 else TEXTS, k=rng.randint(0, 4))
        start = self.make(f"{kind}_start", where, run_id=RUN, **{f"{kind}_id": block_id})
        if kind == "content":
            self._choose_answer(start.content_start)
        deltas = [self.make(f"{kind}_delta", where, **{f"{kind}_id": block_id, "delta": piece}) for piece in pieces]
        end = [self.make(f"{kind}_end", where, **{f"{kind}_id": block_id})]
        return [start, *deltas, *(end if rng.random() < 0.95 else [])]

    def _choose_answer(self, block: Any) -> None:
        block.ClearField("is_answer")
        block.ClearField("stage")
        match self._random.choice(["unsaid", "unsaid", "answer", "remark", "plan"]):
            case "answer":
                block.is_answer, block.stage = True, "summary"
            case "remark":
                block.is_answer = False
            case "plan":
                block.is_answer, block.stage = False, "plan"
            case _:
                pass

    def _make_call(self, where: dict[str, str], *, has_result: bool = True, tool_id: str = "", **fields: Any) -> Scene:
        rng, tool_id = self._random, tool_id or f"call_{self._count()}"
        given = {"tool_type": rng.choice(["backend", "frontend", "orchestrator"]), "tool_api": ""} | fields
        pieces = ARGUMENTS[: rng.randint(0, 5)] if rng.random() < 0.3 else ARGUMENTS
        params = '{"city": "Paris"}' if pieces is ARGUMENTS else ""
        scene = [self.make("tool_start", where, tool_id=tool_id, run_id=RUN, tool_name=rng.choice(WORDS), **given)]
        scene += [
            self.make("tool_args", where, tool_id=tool_id, delta=piece, chunk_index=at)
            for at, piece in enumerate(pieces)
        ]
        scene.append(self.make("tool_end", where, tool_id=tool_id, tool_params=params))
        if not has_result:
            return scene
        outputs = rng.randint(0, 2)
        scene += [self.make("tool_output", where, tool_id=tool_id, delta=rng.choice(TEXTS)) for _ in range(outputs)]
        return [*scene, self.make("tool_result", where, tool_id=tool_id, result=rng.choice(TEXTS))]

    def _make_calls(self, where: dict[str, str]) -> Scene:
        """Return the calls of one answer, which run at the same time."""
        return [*self._interleave([self._make_call(where) for _ in range(self._random.randint(2, 3))])]

    def _make_client_call(self, *, has_result: bool) -> Scene:
        tool_id = f"t_{self._count():08x}"
        return self._make_call({}, has_result=has_result, tool_id=tool_id, tool_type="frontend", tool_api="client")

    def _make_action(self, where: dict[str, str]) -> Scene:
        action_id = f"a_{self._count():08x}"
        ids = {"action_id": action_id}
        scene = [self.make("action_start", where, run_id=RUN, action_name="paint", **ids)]
        scene += [self.make("action_args", where, delta=piece, **ids) for piece in ARGUMENTS]
        scene += [self.make("action_end", where, **ids), self.make("action_param", where, **ids)]
        return [*scene, self.make("action_result", where, result="Done.", **ids)]

    def _make_gate(self, where: dict[str, str]) -> Scene:
        """Return a call that waits for a person, and what becomes of the wait."""
        rng = self._random
        kind = rng.choice(["approval", "form", "question", "credential", "client"])
        if kind == "client":
            return self._make_client_call(has_result=True)
        *call_events, result = self._make_call(where)
        tool_id, opened = call_events[0].tool_start.tool_id, self._open_gate(where, kind, call_events[0].tool_start)
        gate_id = opened[-1].gate_open.gate_id
        scene = [*call_events, *opened]
        steps = rng.sample(["vote", "delegated", "asked_back", "claimed", "reminded"], rng.randint(0, 2))
        scene += [self.make("gate_step", where, gate_id=gate_id, step=step) for step in steps]
        if kind == "approval":
            scene.append(self.make("approval_answer", where, approval_id=gate_id, decision="approve"))
        else:
            scene.append(self.make("request_submit", where, run_id=RUN, chat_id=CHAT, tool_id=tool_id))
        scene.append(self.make("gate_close", where, gate_id=gate_id, state=rng.choice(["answered", "expired"])))
        if kind == "approval" and rng.random() < 0.4:
            scene.append(self.make("grant_make", where, gate_id=gate_id, scope="run"))
            scene.append(self.make("grant_use", where, tool_id=tool_id))
        return [*scene, result]

    def _open_gate(self, where: dict[str, str], kind: str, call: agent_pb2.ToolStart) -> Scene:
        rng = self._random
        gate_id = f"approval_{self._count():08x}" if kind == "approval" else call.tool_id
        gate = {"gate_id": gate_id, "kind": kind, "tool_id": call.tool_id, "tool_name": call.tool_name}
        opened = self.make("gate_open", where, agent_key="helper", **gate)
        opened.gate_open.ClearField("result_schema")
        opened.gate_open.ClearField("ask")
        if kind != "credential":
            opened.gate_open.ClearField("need")
        if kind == "form" and rng.random() < 0.5:
            opened.gate_open.ask.authorizes = rng.random() < 0.5
            opened.gate_open.ask.url = "https://example.org/authorize"
        if kind in ("form", "question"):
            opened.gate_open.result_schema = rng.choice(SCHEMAS)
        events = [self.make("approval_ask", where, approval_id=gate_id, tool_id=call.tool_id)]
        return [*(events if kind == "approval" else []), opened]

    def _make_wait(self) -> Scene:
        """Return what a run waits for: gates, functions of its caller, or both."""
        kinds = self._random.choice(WAITS)
        calls: list[Scene] = []
        gates: Scene = []
        for kind in kinds:
            if kind == "client":
                calls.append(self._make_client_call(has_result=False))
            else:
                calls.append(self._make_call({}, has_result=False))
                gates += self._open_gate({}, kind, calls[-1][0].tool_start)
        return [*self._make_text({}, "content"), *(delta for call in calls for delta in call), *gates]

    def _make_reset(self, where: dict[str, str]) -> Scene:
        """Return blocks that are lost and made again."""
        rng = self._random
        before = self._make_text(where, "content")
        lost = [
            *self._make_text(where, rng.choice(["content", "reasoning"])),
            *self._make_call(where, has_result=False),
        ]
        lost = lost[: rng.randint(1, len(lost))]
        is_handed_over = rng.random() < 0.4
        reset = self.make("attempt_reset", where, run_id=RUN, reason="INTERRUPTED" if is_handed_over else "RETRIED")
        reset.attempt_reset.from_seq = 1 if is_handed_over else 0
        return [*before, *lost, reset, *self._make_text(where, "content")]

    def _make_snapshots(self, where: dict[str, str]) -> Scene:
        """Return blocks as history has them, one of which is told again."""
        rng, block_id, tool_id = self._random, self._name_block("content"), f"call_{self._count()}"
        content = self.make("content_snapshot", where, content_id=block_id, run_id=RUN, text=rng.choice(TEXTS))
        self._choose_answer(content.content_snapshot)
        thought = self.make("reasoning_snapshot", where, reasoning_id=self._name_block("reasoning"), run_id=RUN)
        call = self.make("tool_snapshot", where, tool_id=tool_id, tool_name="weather", tool_api="", run_id=RUN)
        action = self.make("action_snapshot", where, action_id=f"a_{self._count():08x}", run_id=RUN)
        scene = [thought, content, call, self.make("tool_result", where, tool_id=tool_id), action]
        again = Delta.FromString(content.SerializeToString())
        again.content_snapshot.text += " And more."
        return [*scene, *([again] if rng.random() < 0.5 else [])]

    def _make_news(self, where: dict[str, str]) -> Scene:
        kinds = ["run_notice", "source_snapshot", "artifact_publish", "request_steer", "request_upload"]
        chosen = self._random.sample(kinds, self._random.randint(1, 3))
        scene = [self.make(kind, where) for kind in chosen]
        for delta in scene:
            if delta.HasField("artifact_publish"):
                delta.artifact_publish.artifact_id = f"artifact_{self._count()}"
                delta.artifact_publish.url = f"/api/resource?file={CHAT}%2Fout.png"
        return scene

    def _make_compaction(self, where: dict[str, str]) -> Scene:
        end = self._random.choice(["compaction_complete", "compaction_fallback", "compaction_fail"])
        return [self.make("compaction_start", where, chat_id=CHAT), self.make(end, where, chat_id=CHAT)]

    def _make_plan(self) -> list[Scene]:
        """Return a plan and its tasks, which work at the same time."""
        rng, plan_id, task_ids = self._random, f"{self._count():08x}", [f"{self._count():08x}" for _ in range(2)]
        plan = self.make("plan_create", plan_id=plan_id, chat_id=CHAT)
        del plan.plan_create.plan[:]
        for task_id in task_ids:
            plan.plan_create.plan.add(task_id=task_id, description=f"Do {task_id}", status="init")
        changed = self.make("plan_update", plan_id=plan_id, chat_id=CHAT)
        changed.plan_update.plan.extend(plan.plan_create.plan)
        changed.plan_update.plan[0].status = "in_progress"
        if rng.random() < 0.3:
            changed.plan_update.plan.add(task_id="00000000", description="One more", status="init")
        tracks: list[Scene] = [[plan, changed]]
        for task_id in task_ids:
            where = {"task_id": task_id}
            inner = [delta for _ in range(rng.randint(0, 2)) for scene in self._make_scenes(where) for delta in scene]
            end = self.make(rng.choice(["task_complete", "task_complete", "task_fail", "task_cancel"]), task_id=task_id)
            tracks.append([self.make("task_start", task_id=task_id, run_id=RUN), *inner, end])
        return tracks

    def _make_subagents(self) -> list[Scene]:
        rng = self._random
        tracks: list[Scene] = []
        parent_id = RUN
        for depth in range(1, rng.randint(2, 3)):
            subagent_id = f"subagent-{self._count():08x}"
            where = {"subagent_id": subagent_id}
            inner = [delta for _ in range(rng.randint(0, 3)) for scene in self._make_scenes(where) for delta in scene]
            start = self.make("subagent_start", subagent_id=subagent_id, run_id=RUN, parent_id=parent_id, depth=depth)
            end = self.make("subagent_end", subagent_id=subagent_id)
            tracks.append([start, *inner, *([end] if rng.random() < 0.9 else [])])
            parent_id = subagent_id if rng.random() < 0.5 else RUN
        return tracks

    def _interleave(self, tracks: Sequence[Sequence[Delta]]) -> Iterator[Delta]:
        remaining = [[*track] for track in tracks if track]
        while remaining:
            track = self._random.choice(remaining)
            for _ in range(min(len(track), self._random.randint(1, 4))):
                yield track.pop(0)
            remaining = [track for track in remaining if track]

    def make_unknown(self, where: dict[str, str]) -> Delta:
        """Return an event of a type that this version does not know."""
        delta = Delta(subagent_id=where.get("subagent_id"), task_id=where.get("task_id"))
        return Delta.FromString(delta.SerializeToString() + UNKNOWN)

    def make(self, kind: str, where: dict[str, str] | None = None, /, **fields: Any) -> Delta:
        """Return an event; what `fields` leaves open is filled from its descriptor."""
        delta = Delta(subagent_id=(where or {}).get("subagent_id"), task_id=(where or {}).get("task_id"))
        payload = getattr(delta, kind)
        payload.SetInParent()
        self._fill(payload, fields)
        if self._random.random() < 0.05:
            payload.MergeFromString(UNKNOWN)
        return delta

    def _fill(self, message: Message, given: dict[str, Any]) -> None:
        for field in message.DESCRIPTOR.fields:
            if field.name in given:
                setattr(message, field.name, given[field.name])
            elif field.has_presence and self._random.random() < 0.5:
                continue
            elif field.is_repeated:
                for _ in range(self._random.randint(0, 2)):
                    if field.message_type is not None:
                        self._fill(getattr(message, field.name).add(), {})
                    else:
                        getattr(message, field.name).append(self._make_value(field))
            elif field.message_type is not None:
                nested = getattr(message, field.name)
                nested.SetInParent()
                self._fill(nested, {})
            else:
                setattr(message, field.name, self._make_value(field))

    def _make_value(self, field: Any) -> Any:
        rng = self._random
        if rules_of(field).json or field.name == "details":
            return rng.choice(JSONS)
        match field.type:
            case FieldDescriptor.TYPE_STRING:
                return f"{field.name} {rng.choice(PIECES)}"
            case FieldDescriptor.TYPE_BOOL:
                return rng.random() < 0.7
            case FieldDescriptor.TYPE_DOUBLE:
                return rng.choice([0.0, 0.25, 0.000012345])
            case _:
                return 1_700_000_300_000 if field.name.endswith("_at") else rng.randint(0, 5000)

    def _name_block(self, kind: str) -> str:
        self._blocks += 1
        return f"{RUN}_{kind[0]}_{self._blocks}"

    def _count(self) -> int:
        self._ids += 1
        return self._ids


def disturb_order(deltas: list[Delta], seed: int) -> list[Delta]:
    """Return the events as no server sends them: some missing, repeated or reordered; the start stays in place."""
    rng, disturbed = random.Random(seed), [*deltas]
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(3, len(disturbed)) if len(disturbed) > 3 else len(disturbed) - 1
        match rng.choice(["drop", "repeat", "swap", "late"]):
            case "drop":
                del disturbed[at]
            case "repeat":
                disturbed.insert(at, disturbed[at])
            case "swap" if at > 3:
                disturbed[at - 1], disturbed[at] = disturbed[at], disturbed[at - 1]
            case _:
                disturbed.append(disturbed[at])
    return disturbed


def make_runs(count: int, odd_count: int) -> Iterator[RecordedRun]:
    for seed in range(count + odd_count):
        deltas, is_waiting = RunMaker(seed).make_run()
        is_odd = seed >= count
        numbered = number_events(disturb_order(deltas, seed) if is_odd else deltas)
        yield RecordedRun(f"{'odd' if is_odd else 'made'}-{seed:03}", numbered, is_waiting=is_waiting)
