"""Encodes a run's events as AG-UI events.

Events that the reader already has are consumed in silence, so that a stream may start anywhere. A
MESSAGES_SNAPSHOT corrects messages that were lost or are sent again from their beginning.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from headrace.runs.fold import TERMINAL, Fold
from headrace.runs.parts import (
    CLIENT,
    Block,
    BlockBegun,
    BlockEnded,
    BlocksLost,
    CallAnswered,
    Changes,
    Gate,
    TextAdded,
)
from headrace.v1 import agent_pb2
from services.facade.adapters.call_ids import CallId
from services.facade.agui.frames import OURS, PROTOCOL_VERSION, add_id, encode_frame, encode_head
from services.facade.agui.messages import Message, MessageKind
from services.facade.agui.progress import Progress
from services.facade.agui.reader import Reader
from services.facade.agui.segment import Segment
from services.facade.agui.waits import build_outcome
from services.runtime.formats.json_form import event

Delta = agent_pb2.AgentDelta

BLOCK_EVENTS = frozenset(
    f"{kind}_{part}"
    for kind in ("content", "reasoning", "tool", "action")
    for part in ("start", "delta", "args", "param", "end", "result", "snapshot")
) | {"attempt_reset"}
"""Events encoded as changes of blocks, or not at all."""

ORCHESTRATOR = "orchestrator"
"""Type of the tools that change the session state."""

_HEADS = {"text": "TEXT_MESSAGE_CONTENT", "reasoning": "REASONING_MESSAGE_CONTENT", "call": "TOOL_CALL_ARGS"}


class RunEncoder:
    def __init__(self, segment: Segment, run_id: str = "") -> None:
        """`run_id` is the run's id, if it is known before its events."""
        self._segment = segment
        self._run_id = run_id
        self._id_head = f"{segment.n}.".encode() if segment.n else b""
        self._question = ""
        self._known_ids = segment.list_known_ids()
        self._told_calls = segment.map_told_calls()
        self._silent_to = segment.known_seq
        self._is_silent = self._silent_to > 0
        self._reader = Reader()
        self._progress = Progress(self._reader)
        self._fold = Fold()
        self._messages: dict[str, Message] = {}
        """Messages by our block or call id, in order of their start."""
        self.seq = 0
        self.is_over = False
        self.is_state_due = False
        """Whether a tool that may have changed the session state has run since the state was last sent."""

    @property
    def is_waiting(self) -> bool:
        """Whether the run waits for an answer and no message is open; another branch may still be working
        silently.
        """
        if not (self._fold.gates or self._fold.client_calls):
            return False
        return bool(self._list_gates() or self._list_calls()) and not self._reader.open_ids

    def encode(self, delta: Delta) -> bytes:
        """Return the frames of an event, the last one with an id; empty if the reader gets nothing."""
        kind = delta.WhichOneof("payload")
        self.seq = seq = delta.seq
        start = self.begin() if self._is_silent and seq > self._silent_to else b""
        changes = self._fold.apply(delta)
        if len(changes) == 1 and type(added := changes[0]) is TextAdded:
            message, frames = self._messages[added.block.id], b""
            if message.id in self._reader.open_ids:
                frames = b"%b%b}\n\n" % (message.head, orjson.dumps(added.text))
        elif kind is None:
            frames = b""
        else:
            frames = self._encode_change(changes) or self._encode_event(kind, delta)
        if self._is_silent or not (frames or start):
            return b""
        return add_id(start + frames, self._id_head, seq, self._reader.cursor_tail)

    def begin(self) -> bytes:
        """End the silence: return the frames that the reader needs before further events."""
        if not self._is_silent:
            return b""
        self._is_silent = False
        self.is_state_due = True
        if self._segment.cursor is None:
            self._reader.forget_messages()
            return self._start_run() + self._reader.reopen()
        self._reader.adopt_cursor(self._segment.cursor)
        return self._encode_snapshot() if self._segment.cursor.open_ids else b""

    def end_waiting(self) -> bytes:
        """Return the last frames of the stream of a waiting run."""
        start, self.is_over = self.begin(), True
        outcome = build_outcome(self._list_gates(), self._list_calls(), self._run_id, self.seq)
        closed = self._reader.close_all(is_suspended=True)
        return add_id(start + closed + self._finish(outcome), self._id_head, self.seq, b"")

    def encode_state(self, kind: str, **fields: Any) -> bytes:
        return add_id(encode_frame(kind, **fields), self._id_head, self.seq, self._reader.cursor_tail)

    def _list_gates(self) -> list[tuple[Gate, str]]:
        """Return the gates that the request does not answer, each with the client's id of its call."""
        gates = [gate for key, gate in self._fold.gates.items() if key not in self._segment.answered]
        return [(gate, self._find_call_id(gate.open.tool_id)) for gate in gates]

    def _list_calls(self) -> list[str]:
        """Return the client's ids of the function calls that the run waits for."""
        return [self._find_call_id(key) for key in self._fold.client_calls if key not in self._segment.answered]

    def _find_call_id(self, tool_id: str) -> str:
        return self._messages[tool_id].id if tool_id in self._messages else tool_id

    def _encode_change(self, changes: Changes) -> bytes:
        """Return the events of a change of blocks."""
        match changes:
            case (BlockBegun(block=block), *rest):
                return self._open(block) + (self._close(block) if rest else b"")
            case (BlockEnded(block=block),):
                return self._close(block)
            case (CallAnswered(block=block),):
                return self._encode_result(block)
            case (BlocksLost(blocks=blocks),):
                return self._drop(blocks)
            case _:
                return b""

    def _encode_event(self, kind: str, delta: Delta) -> bytes:
        payload = getattr(delta, kind)
        match kind:
            case "run_start":
                self._run_id = payload.run_id
                is_begun = self._segment.is_continued or self._is_silent
                return b"" if is_begun else self._start_run() + self._encode_question()
            case "request_query":
                self._question = payload.message
                return b""
            case "gate_open":
                return self._encode_custom(delta) if self._segment.n else b""
            case _ if kind in TERMINAL:
                return self._end(kind, payload)
            case _ if kind == "chat_start" or kind in BLOCK_EVENTS:
                return b""
            case _:
                return self._progress.encode(kind, delta) or self._encode_custom(delta)

    def _open(self, block: Block) -> bytes:
        message = self._messages[block.id] = self._make_message(block)
        if message.id in self._known_ids:
            return b""
        if not self._is_silent and message.id in self._reader.open_ids:
            return self._encode_snapshot()  # the reader has a part of it
        opened = self._reader.open_message(message)
        return opened + (b"%b%b}\n\n" % (message.head, orjson.dumps(message.text)) if message.text else b"")

    def _make_message(self, block: Block) -> Message:
        kind: MessageKind = "call" if block.is_call else "text" if _is_shown(block) else "reasoning"
        message_id = block.id
        if kind == "call":
            message_id = f"{block.id}.{self._run_id[:8]}"
        if block.tool_api == CLIENT:
            # Keep the id that the client received: in a replay, a finished call has the sequence number of its
            # end.
            known_id = self._told_calls.get((self._run_id, block.id))
            message_id = known_id or str(CallId(self._run_id, block.id, block.seq))
        field = "toolCallId" if kind == "call" else "messageId"
        head = encode_head(_HEADS[kind], **{field: message_id}, subagentRunId=block.scope[0] or None)
        return Message(block, kind, message_id, head)

    def _close(self, block: Block) -> bytes:
        return self._reader.close_message(self._messages[block.id].id)

    def _encode_result(self, block: Block) -> bytes:
        message = self._messages[block.id]
        if message.is_own:
            return b""
        # After the silence the reader gets the whole state, so changes during it need no refresh.
        self.is_state_due = self.is_state_due or (block.tool_type == ORCHESTRATOR and not self._is_silent)
        if message.result_id in self._known_ids:
            return b""
        return self._reader.close_message(message.id) + encode_frame(
            "TOOL_CALL_RESULT",
            messageId=message.result_id,
            toolCallId=message.id,
            content=block.result,
            role="tool",
            subagentRunId=block.scope[0] or None,
        )

    def _drop(self, lost: Sequence[Block]) -> bytes:
        """Retract lost blocks, including those that only the reader still knows."""
        closed = [self._close(block) for block in lost]
        for block in lost:
            del self._messages[block.id]
        if self._is_silent:
            return b""
        present = {message.id for message in self._messages.values()}
        closed += [self._reader.close_message(id) for id in [*self._reader.open_ids] if id not in present]
        return b"".join(closed) + self._encode_snapshot()

    def _encode_snapshot(self) -> bytes:
        known = {message["id"] for message in self._segment.messages}
        messages = [
            built for message in self._messages.values() for built in message.build() if built["id"] not in known
        ]
        return encode_frame("MESSAGES_SNAPSHOT", messages=[*self._segment.messages, *messages])

    def _start_run(self) -> bytes:
        self.is_state_due = True
        return encode_frame(
            "RUN_STARTED",
            threadId=self._segment.thread_id,
            runId=self._segment.client_run_id,
            protocolVersion=PROTOCOL_VERSION,
            metadata={OURS: {"runId": self._run_id}},
        )

    def _encode_question(self) -> bytes:
        """Return the user's message of a followed run; empty if this reader sent it."""
        message_id = f"{self._segment.client_run_id}_question"
        if not self._segment.n or message_id in self._known_ids:
            return b""
        started = encode_frame("TEXT_MESSAGE_START", messageId=message_id, role="user")
        content = (
            encode_frame("TEXT_MESSAGE_CONTENT", messageId=message_id, delta=self._question) if self._question else b""
        )
        return started + content + encode_frame("TEXT_MESSAGE_END", messageId=message_id)

    def _end(self, kind: str, payload: Any) -> bytes:
        self.is_over = True
        usage = _build_usage(payload.usage)
        if kind == "run_error":
            return encode_frame("RUN_ERROR", message=payload.error.message, code=payload.error.code, usage=usage)
        if kind == "run_cancel":
            return self._reader.close_all(is_suspended=False) + self._finish({"type": "cancelled"}, usage=usage)
        output = orjson.loads(payload.output) if payload.output else None
        result = {"finishReason": payload.finish_reason, **({} if output is None else {"output": output})}
        closed = self._reader.close_all(is_suspended=False)
        return closed + self._finish({"type": "success"}, usage=usage, result=result)

    def _finish(self, outcome: dict[str, Any], **fields: Any) -> bytes:
        ids = {"threadId": self._segment.thread_id, "runId": self._segment.client_run_id}
        return encode_frame("RUN_FINISHED", **ids, outcome=outcome, **fields)

    def _encode_custom(self, delta: Delta) -> bytes:
        custom = event(delta)
        if custom is None:
            return b""
        name = f"{OURS}.{(delta.WhichOneof('payload') or '').replace('_', '.', 1)}"
        owner = b',"subagentRunId":' + orjson.dumps(delta.subagent_id) if delta.subagent_id else b""
        return b'data: {"type":"CUSTOM","name":%b,"value":%b%b}\n\n' % (orjson.dumps(name), custom.json, owner)


def _is_shown(block: Block) -> bool:
    """Return whether a block is the answer of the run or of a sub-agent; text of planners and tasks counts as
    reasoning.
    """
    return block.kind == "content" and (block.is_answer or bool(block.scope[0]))


def _build_usage(usage: Any) -> list[dict[str, int]]:
    counts = {
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "totalTokens": usage.input_tokens + usage.output_tokens,
    }
    counts |= {"reasoningTokens": usage.reasoning_tokens} if usage.HasField("reasoning_tokens") else {}
    counts |= {"cachedInputTokens": usage.cached_tokens} if usage.HasField("cached_tokens") else {}
    return [counts]
