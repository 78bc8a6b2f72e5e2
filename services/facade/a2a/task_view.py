"""Presents a run as an A2A task: its events as task events, and its current state as a Task.

The answer is one artifact, to which deltas append. The next piece replaces text that was lost, or that became a
remark because a tool call followed it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import orjson

from headrace.run_states import LIVE_STATES, STATES_BY_EVENT, State
from headrace.runs.fold import Fold
from headrace.runs.parts import (
    RUN,
    Block,
    BlockBegun,
    BlocksLost,
    Change,
    FilePublished,
    GateClosed,
    GateOpened,
    RunBegun,
    RunEnded,
    TextAdded,
)
from headrace.shown_text import make_visible
from headrace.v1 import agent_pb2
from services.facade.faces.gate_answers import APPROVAL, CREDENTIAL
from services.runtime.clock import format_time
from services.runtime.formats.chat_cursor import ChatCursor

ANSWER = "answer"

STATES: dict[str, str] = {
    State.QUEUED: "TASK_STATE_SUBMITTED",
    State.RUNNING: "TASK_STATE_WORKING",
    State.WAITING: "TASK_STATE_INPUT_REQUIRED",
    State.COMPLETED: "TASK_STATE_COMPLETED",
    State.CANCELLED: "TASK_STATE_CANCELED",
    State.FAILED: "TASK_STATE_FAILED",
}
AUTH_REQUIRED = "TASK_STATE_AUTH_REQUIRED"
"""State of a task that waits for an authorization."""

LIVE = frozenset(LIVE_STATES)


class EventSink(Protocol):
    """Receives a task's events and encodes them for a binding; `seq` is an event's cursor."""

    def send_event(self, event: dict[str, Any], seq: int) -> bool:
        """Send a StreamResponse in protobuf's JSON form; return False when the caller must await
        `wait_until_drained`.
        """
        ...

    def send_piece(self, ids: dict[str, str], text: str, seq: int, *, append: bool) -> bool:
        """Send a piece of the answer of the task in `ids`; return False when the caller must await
        `wait_until_drained`.
        """
        ...

    async def wait_until_drained(self) -> None: ...


class TaskView:
    """Consumes a run's events and sends the task's events to `sink`, without those up to `known_seq`.

    `base_url` is the prefix of file URLs.
    """

    def __init__(self, sink: EventSink | None = None, known_seq: int = 0, *, base_url: str = "") -> None:
        self._sink = sink
        self._known_seq = known_seq
        self._base_url = base_url
        self.fold = Fold()
        self.answered: frozenset[str] = frozenset()
        self.has_begun = False
        """Whether the task object has been sent."""
        self.stays_while_waiting = False
        """Whether the reader keeps following after each wait, of which it gets a status update."""
        self.timestamp_ms = 0
        self._is_text_open = False
        """Whether the next piece appends to the artifact."""
        self._has_piece = False

    @property
    def is_over(self) -> bool:
        return self.fold.end is not None

    @property
    def gates(self) -> dict[str, agent_pb2.GateOpen]:
        """Open gates that this request does not answer."""
        return {key: gate.open for key, gate in self.fold.gates.items() if key not in self.answered}

    @property
    def is_waiting(self) -> bool:
        return bool(self.fold.gates) and bool(self.gates) and not self.stays_while_waiting

    def adopt(self, seen: TaskView, answered: frozenset[str]) -> None:
        """Continue from the end of another view of the run, of which this request has answered the gates in
        `answered`.
        """
        self.fold, self._known_seq = seen.fold, seen.fold.last_seq
        self.timestamp_ms = seen.timestamp_ms
        self.answered = answered
        self.send_task(self.fold.last_seq)

    async def wait_until_ready(self) -> None:
        if self._sink is not None:
            await self._sink.wait_until_drained()

    def take(self, delta: agent_pb2.AgentDelta) -> bool:
        self.timestamp_ms = delta.timestamp
        is_ready = True
        for change in self.fold.apply(delta):
            # The hot path: nearly all changes are text.
            if type(change) is not TextAdded:
                is_ready = self._take_change(change, delta.seq) and is_ready
            elif change.block.is_answer and self._sink is not None and delta.seq > self._known_seq:
                append = self._is_text_open and self._has_piece
                self._is_text_open = self._has_piece = True
                text = change.text if append else self.fold.answer
                is_ready = self._sink.send_piece(self._ids, text, delta.seq, append=append) and is_ready
        return is_ready

    def recall(self, delta: agent_pb2.AgentDelta) -> bool:
        """Consume an event that the reader already has, without sending anything."""
        sink, self._sink = self._sink, None
        self.take(delta)
        self._sink = sink
        return True

    def _take_change(self, change: Change, seq: int) -> bool:
        match change:
            case RunBegun():
                return self.send_task(seq)
            case BlockBegun(is_again=True, block=Block(kind="content")):
                self._is_text_open = False  # a slow reader gets the block again from its start
            case BlockBegun(block=block) if block.is_call and block.scope == RUN:
                self._is_text_open = False
            case BlocksLost(scope=scope) if scope == RUN:
                self._is_text_open = False
            case GateOpened(gate) if gate.open.gate_id not in self.answered:
                return self._send_change(seq)
            case GateClosed():
                return self._send_change(seq)
            case FilePublished(file):
                return self._send_file(seq, file)
            case RunEnded():
                return self.send_status(seq)
            case _:
                pass
        return True

    def _send_file(self, seq: int, file: agent_pb2.ArtifactPublish) -> bool:
        if self._sink is None or seq <= self._known_seq:
            return True
        update = self._ids | {"artifact": self._build_file(file), "append": False, "lastChunk": True}
        return self._sink.send_event({"artifactUpdate": update}, seq)

    def _build_file(self, file: agent_pb2.ArtifactPublish) -> dict[str, Any]:
        part = {"url": self._base_url + file.url, "filename": file.name, "mediaType": file.mime_type}
        return {"artifactId": file.artifact_id, "name": file.name, "parts": [part]}

    def _send_change(self, seq: int) -> bool:
        return not self.stays_while_waiting or seq <= self._known_seq or self.send_status(seq)

    @property
    def _ids(self) -> dict[str, str]:
        return {"taskId": self.fold.run_id, "contextId": self.fold.chat_id}

    def send_task(self, seq: int) -> bool:
        """Send the task, which is the first event of its stream."""
        if self._sink is None or self.has_begun:
            return True
        self.has_begun = True
        return self._sink.send_event({"task": self.build_task()}, seq)

    def send_status(self, seq: int) -> bool:
        if self._sink is None:
            return True
        is_ready = True
        if self.fold.end is not None and self.fold.end.run_complete.output and seq > self._known_seq:
            update = self._ids | {"artifact": self._build_artifacts()[0], "append": False, "lastChunk": True}
            is_ready = self._sink.send_event({"artifactUpdate": update}, seq)
        return self._sink.send_event({"statusUpdate": self._ids | {"status": self.build_status()}}, seq) and is_ready

    def build_task(self) -> dict[str, Any]:
        task = {"id": self.fold.run_id, "contextId": self.fold.chat_id, "status": self.build_status()}
        return task | ({"artifacts": artifacts} if (artifacts := self._build_artifacts()) else {})

    def _build_artifacts(self) -> list[dict[str, Any]]:
        parts: list[dict[str, Any]] = [{"text": self.fold.answer}] if self.fold.answer else []
        if self.fold.end is not None and self.fold.end.run_complete.output:
            parts.append({"data": orjson.loads(self.fold.end.run_complete.output), "mediaType": "application/json"})
        answer = [{"artifactId": ANSWER, "name": ANSWER, "parts": parts}] if parts else []
        return [*answer, *map(self._build_file, self.fold.files.values())]

    def build_status(self) -> dict[str, Any]:
        end = self.fold.end.WhichOneof("payload") if self.fold.end is not None else None
        state = STATES[STATES_BY_EVENT.get(end or "", State.WAITING if self.gates else State.RUNNING)]
        # A message without a gateId answers the first gate, so the state describes that one.
        if end is None and self.gates and asks_for_authorization(next(iter(self.gates.values()))):
            state = AUTH_REQUIRED
        status: dict[str, Any] = {"state": state, "timestamp": format_time(self.timestamp_ms)}
        if self.fold.end is not None:
            if self.fold.end.HasField("run_error"):
                why = self.fold.end.run_error.error
                data = {"reason": why.code, "retriable": why.retriable}
                status["message"] = self._build_message([{"text": f"{why.code}: {why.message}"}, {"data": data}])
        elif self.gates:
            status["message"] = self._build_message([part for gate in self.gates.values() for part in self._ask(gate)])
        return status

    def _ask(self, gate: agent_pb2.GateOpen) -> list[dict[str, Any]]:
        arguments = self.fold.get_arguments(gate.tool_id)
        data: dict[str, Any] = {"gateId": gate.gate_id, "kind": gate.kind, "toolName": gate.tool_name}
        data |= {"arguments": make_visible(arguments), "expiresAt": gate.expires_at}  # escapes keep JSON's value
        if gate.kind == APPROVAL:
            data |= {"answers": ["approve", "reject"], "risk": gate.risk}
        elif gate.result_schema:
            data |= {"schema": orjson.loads(gate.result_schema)}
        if gate.ask.HasField("url"):
            data |= {"url": gate.ask.url}
        text = f"{gate.tool_name} waits for {_name_answer(gate)}"
        return [{"text": text}, {"data": data, "mediaType": "application/json"}]

    def _build_message(self, parts: list[dict[str, Any]]) -> dict[str, Any]:
        fold = self.fold
        ids = {"messageId": f"{fold.run_id}.{fold.last_seq}", "taskId": fold.run_id, "contextId": fold.chat_id}
        return ids | {"role": "ROLE_AGENT", "parts": parts}


def asks_for_authorization(gate: agent_pb2.GateOpen) -> bool:
    """Return whether a gate waits for a credential or for the user to authorize at another server."""
    return gate.kind == CREDENTIAL or gate.ask.authorizes


def _name_answer(gate: agent_pb2.GateOpen) -> str:
    if gate.kind == APPROVAL:
        return "approval"
    if gate.ask.authorizes:
        return f"an authorization at {gate.ask.url}: then say done"
    return "a credential" if gate.kind == CREDENTIAL else "an answer"


class ContextSink:
    """Consumes the events of a chat's runs after `cursor`, presenting each run as a task.

    The run in which the cursor lies is replayed from its beginning.
    """

    def __init__(self, make_events: Callable[[str], EventSink], cursor: ChatCursor, base_url: str) -> None:
        """`make_events` opens the event sink of a task, given the task's number in the context."""
        self._make_events = make_events
        self._known = cursor
        self._base_url = base_url
        self._run_id = ""
        self._task = TaskView()

    async def take(self, followed: agent_pb2.FollowDelta) -> bool:
        if not followed.run_id:
            return True  # A2A has no events between tasks
        at = ChatCursor.read(followed.cursor)
        known_seq = self._known.seq if at.n == self._known.n else 0
        if followed.run_id != self._run_id:
            self._run_id = followed.run_id
            self._task = TaskView(self._make_events(str(at.n)), known_seq, base_url=self._base_url)
            self._task.stays_while_waiting = True
            self._task.has_begun = known_seq > 0
        is_ready = self._task.take(followed.delta) if at.seq > known_seq else self._task.recall(followed.delta)
        if not is_ready:
            await self._task.wait_until_ready()
        return True
