"""A run's events as AG-UI's.

What its reader has already is followed in silence, so a stream may begin anywhere. Messages that are told again from
their beginning, or that were lost, are put right by a MESSAGES_SNAPSHOT.
"""

from __future__ import annotations

from typing import Any

import orjson

from headrace.fold import TERMINAL, Scope, find_scope
from headrace.v1 import agent_pb2
from services.facade.agui.frames import OURS, PROTOCOL_VERSION, add_id, encode_frame, encode_head
from services.facade.agui.messages import Message, MessageKind
from services.facade.agui.progress import Progress
from services.facade.agui.reader import Reader
from services.facade.agui.segment import Segment
from services.facade.agui.waits import Waits
from services.facade.faces.call_ids import CallId
from services.runtime.formats.json_form import event

Delta = agent_pb2.AgentDelta

CLIENT = "client"

ORCHESTRATOR = "orchestrator"
"""Type of the tools that change the session state."""

_HEADS = {"text": "TEXT_MESSAGE_CONTENT", "reasoning": "REASONING_MESSAGE_CONTENT", "call": "TOOL_CALL_ARGS"}


class RunEncoder:
    def __init__(self, segment: Segment, run_id: str = "") -> None:
        """`run_id` is the run's, where it is known before its events."""
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
        self._waits = Waits(segment.answered)
        self._messages: dict[str, Message] = {}
        """By our id of the block or call, in order of beginning."""
        self.seq = 0
        self.is_over = False
        self.is_state_due = False
        """Whether a tool has run that may have changed the session state."""

    @property
    def is_waiting(self) -> bool:
        """Whether nothing will come before somebody answers, unless another branch of the run works on in silence."""
        return self._waits.is_waiting and not self._reader.open_ids

    def encode(self, delta: Delta) -> bytes:
        """Return the frames of an event, of which the last has an id; perhaps none."""
        kind = delta.WhichOneof("payload")
        self.seq = seq = delta.seq
        begun = self.begin() if self._is_silent and seq > self._silent_to else b""
        if kind == "content_delta":
            frames = self._encode_piece(delta.content_delta.content_id, delta.content_delta.delta)
        elif kind == "reasoning_delta":
            frames = self._encode_piece(delta.reasoning_delta.reasoning_id, delta.reasoning_delta.delta)
        elif kind == "tool_args":
            frames = self._encode_piece(delta.tool_args.tool_id, delta.tool_args.delta)
        elif kind is None:
            frames = b""
        else:
            frames = self._encode_event(kind, delta)
        if self._is_silent or not (frames or begun):
            return b""
        return add_id(begun + frames, self._id_head, seq, self._reader.cursor_tail)

    def begin(self) -> bytes:
        """End the silence: tell what the reader needs before it goes on."""
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
        """End the stream of a run that waits."""
        begun, self.is_over = self.begin(), True
        outcome = self._waits.build_outcome(self._run_id, self.seq)
        closed = self._reader.close_all(is_suspended=True)
        return add_id(begun + closed + self._finish(outcome), self._id_head, self.seq, b"")

    def encode_state(self, kind: str, **fields: Any) -> bytes:
        return add_id(encode_frame(kind, **fields), self._id_head, self.seq, self._reader.cursor_tail)

    def _encode_piece(self, block_id: str, piece: str) -> bytes:
        message = self._messages.get(block_id)
        if message is None:
            return b""
        message.pieces.append(piece)
        return b"%b%b}\n\n" % (message.head, orjson.dumps(piece)) if message.id in self._reader.open_ids else b""

    def _encode_event(self, kind: str, delta: Delta) -> bytes:
        payload = getattr(delta, kind)
        match kind:
            case "content_start" | "reasoning_start" | "tool_start" | "action_start":
                return self._open(kind, delta, payload)
            case "action_args":
                return self._encode_piece(payload.action_id, payload.delta)
            case "content_end" | "reasoning_end" | "tool_end" | "action_end":
                return self._close(_get_id(kind, payload))
            case "content_snapshot" | "reasoning_snapshot" | "tool_snapshot" | "action_snapshot":
                return self._open(kind, delta, payload) + self._close(_get_id(kind, payload))
            case "tool_result" | "action_result":
                return self._encode_result(_get_id(kind, payload), payload.result)
            case "attempt_reset":
                return self._drop(find_scope(delta), payload.from_seq)
            case "run_start":
                self._run_id = payload.run_id
                is_begun = self._segment.is_continued or self._is_silent
                return b"" if is_begun else self._start_run() + self._encode_question()
            case "request_query":
                self._question = payload.message
                return b""
            case "gate_open":
                message = self._messages.get(payload.tool_id)
                self._waits.open_gate(payload, delta.subagent_id, message.id if message else payload.tool_id)
                return self._encode_custom(delta) if self._segment.n else b""
            case "gate_close":
                self._waits.gates.pop(payload.gate_id, None)
                return self._encode_custom(delta)
            case _ if kind in TERMINAL:
                return self._end(kind, payload)
            case "chat_start" | "action_param":
                return b""
            case _:
                return self._progress.encode(kind, delta) or self._encode_custom(delta)

    def _open(self, kind: str, delta: Delta, payload: Any) -> bytes:
        block_id = _get_id(kind, payload)
        message = self._make_message(kind, delta, payload)
        self._messages[block_id] = message
        if message.is_own:
            self._waits.open_call(block_id, message.id)
        if message.id in self._known_ids:
            return b""
        if not self._is_silent and message.id in self._reader.open_ids:
            return self._encode_snapshot()  # its reader has a part of it
        opened = self._reader.open_message(message)
        return opened + b"".join(b"%b%b}\n\n" % (message.head, orjson.dumps(piece)) for piece in message.pieces)

    def _make_message(self, kind: str, delta: Delta, payload: Any) -> Message:
        block_id, scope = _get_id(kind, payload), (delta.subagent_id, delta.task_id)
        if kind.startswith(("content", "reasoning")):
            is_text = kind.startswith("content") and _is_shown(payload, scope)
            message = _make(("text" if is_text else "reasoning"), block_id, delta.seq, scope)
            text = getattr(payload, "text", "")
        else:
            is_own = getattr(payload, "tool_api", "") == CLIENT
            call_id = f"{block_id}.{self._run_id[:8]}"
            if is_own:
                # The client keeps its id however the run tells the call later: a past one has the number of its end.
                told = self._told_calls.get((self._run_id, block_id))
                call_id = told or str(CallId(self._run_id, block_id, delta.seq))
            message = _make("call", call_id, delta.seq, scope)
            message.is_own, message.tool_type = is_own, getattr(payload, "tool_type", "")
            message.name = getattr(payload, "tool_name", "") or getattr(payload, "action_name", "")
            text = getattr(payload, "arguments", "") or getattr(payload, "tool_params", "")
        message.pieces = [text] if text else []
        return message

    def _close(self, block_id: str) -> bytes:
        message = self._messages.get(block_id)
        return self._reader.close_message(message.id) if message else b""

    def _encode_result(self, block_id: str, result: str) -> bytes:
        self._waits.calls.pop(block_id, None)
        message = self._messages.get(block_id)
        if message is None or message.is_own:
            return b""
        message.result = result
        # In the silence the reader is told nothing, and behind it the state as a whole.
        self.is_state_due = self.is_state_due or (message.tool_type == ORCHESTRATOR and not self._is_silent)
        if message.result_id in self._known_ids:
            return b""
        return self._reader.close_message(message.id) + encode_frame(
            "TOOL_CALL_RESULT",
            messageId=message.result_id,
            toolCallId=message.id,
            content=result,
            role="tool",
            subagentRunId=message.scope[0] or None,
        )

    def _drop(self, scope: Scope, from_seq: int) -> bytes:
        """Take back what was lost, also what the reader alone still knows of."""
        lost = [key for key, message in self._messages.items() if message.scope == scope and message.seq > from_seq]
        closed = [self._close(key) for key in lost]
        for key in lost:
            del self._messages[key]
            self._waits.calls.pop(key, None)
        if self._is_silent:
            return b""
        present = {message.id for message in self._messages.values()}
        closed += [self._reader.close_message(id) for id in set(self._reader.open_ids) - present]
        return b"".join(closed) + self._encode_snapshot()

    def _encode_snapshot(self) -> bytes:
        known = {message["id"] for message in self._segment.messages}
        said = [built for message in self._messages.values() for built in message.build() if built["id"] not in known]
        return encode_frame("MESSAGES_SNAPSHOT", messages=[*self._segment.messages, *said])

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
        """Return what a followed run was asked, unless its reader has asked it: whose request begins a run says it."""
        message_id = f"{self._segment.client_run_id}_question"
        if not self._segment.n or message_id in self._known_ids:
            return b""
        started = encode_frame("TEXT_MESSAGE_START", messageId=message_id, role="user")
        said = (
            encode_frame("TEXT_MESSAGE_CONTENT", messageId=message_id, delta=self._question) if self._question else b""
        )
        return started + said + encode_frame("TEXT_MESSAGE_END", messageId=message_id)

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
        told = event(delta)
        if told is None:
            return b""
        name = f"{OURS}.{(delta.WhichOneof('payload') or '').replace('_', '.', 1)}"
        owner = b',"subagentRunId":' + orjson.dumps(delta.subagent_id) if delta.subagent_id else b""
        return b'data: {"type":"CUSTOM","name":%b,"value":%b%b}\n\n' % (orjson.dumps(name), told.json, owner)


def _make(kind: MessageKind, message_id: str, seq: int, scope: Scope) -> Message:
    field = "toolCallId" if kind == "call" else "messageId"
    head = encode_head(_HEADS[kind], **{field: message_id}, subagentRunId=scope[0] or None)
    return Message(kind, message_id, seq, scope, head)


def _get_id(kind: str, payload: Any) -> str:
    return getattr(payload, f"{kind.partition('_')[0]}_id")


def _is_shown(payload: agent_pb2.ContentStart | agent_pb2.ContentSnapshot, scope: Scope) -> bool:
    """Whether a text is the run's answer or a sub-agent's; what a planner or a task says is reasoning."""
    if scope[0]:
        return True
    return payload.is_answer if payload.HasField("is_answer") else scope == ("", "")


def _build_usage(usage: Any) -> list[dict[str, int]]:
    counts = {
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "totalTokens": usage.input_tokens + usage.output_tokens,
    }
    counts |= {"reasoningTokens": usage.reasoning_tokens} if usage.HasField("reasoning_tokens") else {}
    counts |= {"cachedInputTokens": usage.cached_tokens} if usage.HasField("cached_tokens") else {}
    return [counts]
