"""Restores a run that is taken over: its mode runs again, and scopes first receive the answers in the log."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import orjson
from google.protobuf.message import Message

from headrace.v1 import agent_pb2, memory_pb2
from services.orchestrator.ids import SUBAGENT, TASK
from services.orchestrator.run.events.feed import KINDS

Delta = agent_pb2.AgentDelta

PLANS = frozenset({"plan_create", "plan_update"})
TASK_ENDS = frozenset({"task_complete", "task_fail", "task_cancel"})

KEPT_STAGE = "mode"
"""Stage of steps with a mode's values outside the conversation; models do not see them."""

MADE = "mode"
"""Finish reason of a mode's own texts and calls, as opposed to a model's answers."""


class RestoredScope:
    def __init__(self) -> None:
        self.systems: dict[str, str] = {}
        self.last_system = ""
        self.last_stage = ""
        self.last_seq = 0
        """Seq up to which readers have complete blocks."""
        self.taken = 0
        """Number of messages replayed, without results."""
        self.kept: dict[int, dict[str, Any]] = {}
        """A mode's values outside the conversation, by step."""
        self._messages: deque[memory_pb2.LogMessage] = deque()
        self._results: dict[str, memory_pb2.LogMessage] = {}
        self._events: list[Delta] = []

    @property
    def is_used_up(self) -> bool:
        """Whether everything has been replayed."""
        return not self._messages

    @property
    def open_calls(self) -> list[memory_pb2.LogMessage]:
        """Pieces of answers, each a call without a result."""
        calls = (piece for piece in self._messages if piece.message.tool_calls)
        return [piece for piece in calls if piece.message.tool_calls[0].id not in self._results]

    def answer(self) -> list[memory_pb2.LogMessage]:
        """Consume the next answer's pieces; empty if the model must be asked."""
        pieces = self.peek() if self._messages and self._messages[0].message.role == "assistant" else []
        for _ in pieces:
            self._messages.popleft()
        self.taken += len(pieces)
        return pieces

    def peek(self) -> list[memory_pb2.LogMessage]:
        """Return the next message to the model, or the next answer's pieces; empty if all has been replayed."""
        pieces: list[memory_pb2.LogMessage] = []
        for message in self._messages:
            if pieces and (message.message.role == "user" or message.msg_id != pieces[0].msg_id):
                break
            pieces.append(message)
            if message.message.role == "user":
                break
        return pieces

    def user_message(self) -> str | None:
        if not self._messages or self._messages[0].message.role != "user":
            return None
        self.taken += 1
        return _join_text(self._messages.popleft())

    @property
    def last_kept(self) -> int:
        """The last step with a recorded value; 0 without any."""
        return max(self.kept, default=0)

    def is_next(self, text: str) -> bool:
        return (
            bool(self._messages) and self._messages[0].message.role == "user" and _join_text(self._messages[0]) == text
        )

    def result(self, tool_call_id: str) -> memory_pb2.LogMessage | None:
        return self._results.get(tool_call_id)

    @property
    def artifact_ids(self) -> list[str]:
        kind = "artifact_publish"
        return [event.artifact_publish.artifact_id for event in self._events if event.WhichOneof("payload") == kind]

    @property
    def task_end(self) -> Delta | None:
        """The task's end; None if it has not ended or has more to replay."""
        ends = (event for event in self._events if event.WhichOneof("payload") in TASK_ENDS)
        return next(ends, None) if self.is_used_up else None

    def take_plan(self) -> list[agent_pb2.Task] | None:
        """Consume the newest plan; return None if readers know no plan."""
        plans = [event for event in self._events if event.WhichOneof("payload") in PLANS]
        for event in plans:
            self._events.remove(event)
        if not plans:
            return None
        last = max(plans, key=lambda event: event.seq)  # one that memory refused at first comes after later ones
        return list((last.plan_update if last.HasField("plan_update") else last.plan_create).plan)

    def event(self, payload: Message) -> Delta | None:
        """Consume the recorded event with this payload, which is not published again; None without one."""
        kind = KINDS[type(payload)]
        for event in self._events:
            if event.WhichOneof("payload") == kind and getattr(event, kind) == payload:
                self._events.remove(event)
                return event
        return None

    def note(self, line: memory_pb2.LogLine) -> None:
        if line.HasField("step"):
            self._note_step(line.step)
        elif line.HasField("event"):
            self._events.append(line.event.event)

    def _note_step(self, step: memory_pb2.StepLine) -> None:
        if step.stage == KEPT_STAGE:
            kept = [orjson.loads(_join_text(message)) for message in step.messages]
            self.kept |= {value["step"]: value for value in kept}
            return
        self.last_stage = step.stage
        if step.HasField("system"):
            self.systems[step.stage] = self.last_system = step.system
        for message in step.messages:
            self.last_seq = max(self.last_seq, message.events.last_seq)
            if message.message.role == "tool":
                self._results[message.message.tool_call_id] = message
            else:
                self._messages.append(message)


def _join_text(message: memory_pb2.LogMessage) -> str:
    return "".join(part.text for part in message.message.content)


_UNRECORDED = RestoredScope()


class RestoredRun:
    """A run's log lines by scope; empty for a new run."""

    def __init__(self, lines: Sequence[memory_pb2.LogLine] = ()) -> None:
        self.lines = lines
        self.charges = [charge for line in lines for charge in line.charges]
        self.events: list[Delta] = [line.event.event for line in lines if line.HasField("event")]
        self._scopes: dict[str, RestoredScope] = {}
        for line in lines:
            kind = line.WhichOneof("line")
            if kind in ("step", "event"):
                context_id = getattr(line, kind).context_id
                self._scopes.setdefault(context_id, RestoredScope()).note(line)

    def scope(self, context_id: str | None) -> RestoredScope:
        """Return the scope's recording, which is consumed as the scope runs again."""
        return self._scopes.get(context_id or "", _UNRECORDED)

    def list_tasks(self, below: str | None) -> list[str]:
        """List the recorded contexts of tasks directly below a scope."""
        start = f"{below}.{TASK}" if below else TASK
        return [name for name in self._scopes if name.startswith(start) and "." not in name[len(start) :]]

    def find_payloads(self, kind: str) -> Iterator[Any]:
        return (getattr(event, kind) for event in self.events if event.WhichOneof("payload") == kind)

    def has(self, kind: str, name: str, value: str) -> bool:
        return any(getattr(event, name) == value for event in self.find_payloads(kind))

    def awaits(self, wait_id: str) -> bool:
        """Return whether the run waits for this submit, now or after its replay."""
        if any(ask.approval_id == wait_id for ask in self.find_payloads("approval_ask")):
            return not self.has("approval_answer", "approval_id", wait_id)
        pieces = [message for message in self.messages() if message.tool_id == wait_id]
        return bool(pieces) and all(piece.message.role != "tool" for piece in pieces)

    def messages(self, under: str = "") -> Iterator[memory_pb2.LogMessage]:
        """Iterate over the messages of context `under` and those nested in it, or over all."""
        for line in self.lines:
            if line.HasField("step") and line.step.context_id.startswith(under):
                yield from line.step.messages

    def answers(self, under: str = "") -> Iterator[memory_pb2.LogMessage]:
        """Iterate over the last piece of each answer, which carries its usage."""
        last: dict[str, memory_pb2.LogMessage] = {}
        for message in self.messages(under):
            if message.message.role == "assistant":
                last[message.msg_id] = message
        return iter(last.values())

    def subagents_of(self, agent_id: str) -> list[str]:
        found = [agent_id]
        for start in self.find_payloads("subagent_start"):
            if start.parent_id in found and start.subagent_id not in found:
                found.append(start.subagent_id)
        return found

    @property
    def stages(self) -> set[str]:
        return {
            line.step.stage
            for line in self.lines
            if line.HasField("step") and not line.step.context_id.startswith(SUBAGENT)
        }

    @property
    def steps(self) -> int:
        return max((line.step.seq for line in self.lines if line.HasField("step")), default=0)

    @property
    def has_goal(self) -> bool:
        return any(not line.HasField("query") for line in self.lines)

    @property
    def worked_ms(self) -> int:
        """Time of model and tool calls, without waits for people."""
        asked: dict[str, int] = {}
        spans: list[tuple[int, int]] = []
        for message in self.messages():
            call_id = message.message.tool_call_id
            if message.message.role == "assistant":
                spans.append((message.timing.started_at, message.timing.ended_at))
                asked |= {call.id: message.timing.ended_at for call in message.message.tool_calls}
            elif call_id in asked and message.tool_id == call_id:
                spans.append((asked[call_id], message.ts))
        worked_ms = until = 0
        for start, end in sorted(spans):
            worked_ms += max(0, end - max(start, until))
            until = max(until, end)
        return worked_ms
