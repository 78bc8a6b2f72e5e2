"""Tracks the items open at a stream's reader: none may be opened twice, and all must be closed before the end."""

from __future__ import annotations

from services.facade.agui.frames import encode_frame
from services.facade.agui.messages import Message, MessageKind
from services.facade.agui.segment import Cursor, encode_open_ids


class Reader:
    def __init__(self) -> None:
        self.open_ids: dict[str, MessageKind] = {}
        self.cursor_tail = b""
        """Part of the cursor after the sequence number."""
        self._steps: dict[str, tuple[str, str]] = {}
        """Owner and name by task id."""
        self._subagents: dict[str, bytes] = {}
        """Opening frames by sub-agent id."""
        self._past_subagents: set[str] = set()

    def adopt_cursor(self, cursor: Cursor) -> None:
        self.open_ids = dict(cursor.open_ids)
        self._note_open()

    def forget_messages(self) -> None:
        self.open_ids = {}
        self._note_open()

    def open_message(self, message: Message) -> bytes:
        owner = message.block.scope[0] or None
        self.open_ids[message.id] = message.kind
        self._note_open()
        match message.kind:
            case "text":
                return encode_frame("TEXT_MESSAGE_START", messageId=message.id, role="assistant", subagentRunId=owner)
            case "reasoning":
                return encode_frame("REASONING_START", messageId=message.id, subagentRunId=owner) + encode_frame(
                    "REASONING_MESSAGE_START", messageId=message.id, role="reasoning", subagentRunId=owner
                )
            case "call":
                return encode_frame(
                    "TOOL_CALL_START", toolCallId=message.id, toolCallName=message.block.name, subagentRunId=owner
                )

    def close_message(self, message_id: str) -> bytes:
        """Return the end event of a message or call; empty if it is not open."""
        kind = self.open_ids.pop(message_id, None)
        self._note_open()
        match kind:
            case None:
                return b""
            case "text":
                return encode_frame("TEXT_MESSAGE_END", messageId=message_id)
            case "reasoning":
                return encode_frame("REASONING_MESSAGE_END", messageId=message_id) + encode_frame(
                    "REASONING_END", messageId=message_id
                )
            case "call":
                return encode_frame("TOOL_CALL_END", toolCallId=message_id)

    def open_step(self, task_id: str, owner: str, name: str) -> bytes:
        if task_id in self._steps:
            return b""
        self._steps[task_id] = owner, f"{name} [{task_id}]" if name else task_id
        return self._encode_step("STEP_STARTED", task_id)

    def close_step(self, task_id: str) -> bytes:
        if task_id not in self._steps:
            return b""
        frame = self._encode_step("STEP_FINISHED", task_id)
        del self._steps[task_id]
        return frame

    def _encode_step(self, kind: str, task_id: str) -> bytes:
        owner, name = self._steps[task_id]
        return encode_frame(kind, stepName=name, subagentRunId=owner or None)

    def open_subagent(self, subagent_id: str, name: str, goal: str, parent_id: str) -> bytes:
        """Return the start event; empty for a known sub-agent, since a run repeats the event after a takeover."""
        if subagent_id in self._subagents or subagent_id in self._past_subagents:
            return b""
        has_parent = parent_id in self._subagents or parent_id in self._past_subagents
        frame = encode_frame(
            "SUBAGENT_STARTED",
            subagentRunId=subagent_id,
            name=name,
            description=goal,
            parentSubagentRunId=parent_id if has_parent else None,
        )
        self._subagents[subagent_id] = frame
        return frame

    def close_subagent(self, subagent_id: str, *, summary: str, ok: bool) -> bytes:
        if self._subagents.pop(subagent_id, None) is None:
            return b""
        self._past_subagents.add(subagent_id)
        if not ok:
            return encode_frame("SUBAGENT_ERROR", subagentRunId=subagent_id, message=summary or "it has no result")
        return encode_frame("SUBAGENT_FINISHED", subagentRunId=subagent_id, result=summary or None)

    def reopen(self) -> bytes:
        """Return the start events of steps and sub-agents that continue in a new segment of the run."""
        self._past_subagents.clear()
        steps = [self._encode_step("STEP_STARTED", task_id) for task_id in self._steps]
        return b"".join([*self._subagents.values(), *steps])

    def close_all(self, *, is_suspended: bool) -> bytes:
        """Close all open items, inner ones first."""
        closed = [self.close_message(message_id) for message_id in list(self.open_ids)]
        closed += [self.close_step(task_id) for task_id in list(self._steps)]
        outcome = {"type": "suspended"} if is_suspended else None
        for subagent_id in reversed(self._subagents):
            closed.append(encode_frame("SUBAGENT_FINISHED", subagentRunId=subagent_id, outcome=outcome))
        self._subagents.clear()
        return b"".join(closed)

    def _note_open(self) -> None:
        self.cursor_tail = encode_open_ids(self.open_ids)
