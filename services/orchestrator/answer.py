"""One model answer: each LlmDelta becomes one event at once, and the log's pieces collect on the side.

The block rules of events.md live here: reasoning and content close each other, a tool call's first fragment closes
both, every block is closed by the end. Nothing here waits, and a delta costs its one event.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from io import StringIO
from typing import TypeAlias

import orjson

from headrace.v1 import agent_pb2, common_pb2, llm_pb2, memory_pb2
from services.orchestrator import ids

Delta = agent_pb2.AgentDelta

Send: TypeAlias = Callable[[str, Delta], int]
"""Numbers an event, whose payload is named first, and passes it on; returns its seq."""


@dataclass(slots=True)
class Call:
    """A tool call that the model asked for."""

    tool_id: str
    name: str
    first_seq: int
    started_at: int
    pieces: list[str] = field(default_factory=list[str])
    ended: bool = False

    @property
    def arguments(self) -> str:
        """JSON text as the model wrote it; no arguments at all mean an empty object."""
        return "".join(self.pieces) or "{}"

    @property
    def is_whole(self) -> bool:
        """Whether the arguments are a JSON object, and not what was written of it before a cut."""
        try:
            return isinstance(orjson.loads(self.arguments), dict)
        except ValueError:
            return False


@dataclass(slots=True)
class BlockNames:
    """Ids of a run's text blocks: {runId}_r_{n} and {runId}_c_{n}."""

    run_id: str
    reasoning: int = 0
    content: int = 0
    tool_ids: set[str] = field(default_factory=set[str])
    """Tool ids that the chat's context has; some providers count from call_0 in every answer."""


class Answer:
    """Turns the deltas of one StreamChat call into events and log messages. Used by one task."""

    def __init__(self, send: Send, names: BlockNames) -> None:
        self._send = send
        self._names = names
        self._msg_id = ids.new_msg_id()
        self._kind = ""
        """reasoning or content while such a block is open."""
        self._block_id = ""
        self._text = StringIO()
        self._block_first = 0
        self._block_started = 0
        self._by_index: dict[int, Call] = {}
        self.calls: list[Call] = []
        self.messages: list[memory_pb2.LogMessage] = []
        """The closed pieces, in order."""
        self.usage: common_pb2.Usage | None = None
        self.finish_reason = ""
        self.provider_state = ""

    def take(self, delta: llm_pb2.LlmDelta) -> None:
        """Pass one delta on."""
        kind = delta.WhichOneof("delta")
        if kind == "content":
            self._content(delta.content)
        elif kind == "reasoning":
            self._reasoning(delta.reasoning)
        elif kind == "tool_call":
            self._tool_call(delta.tool_call)
        elif kind == "usage":
            self.usage = delta.usage
        elif kind == "finish":
            self.finish_reason = delta.finish.reason
        elif kind == "provider_state":
            self.provider_state = delta.provider_state
        elif kind == "started":
            # A further attempt: what the one before wanted back is of another answer.
            self.provider_state = ""

    def close(self) -> None:
        """Close every open block: the answer is complete, or was cut. Puts usage and state on the last piece."""
        self._close_text()
        for call in self.calls:
            self._end_call(call)
        if not self.messages:
            return
        if self.usage is not None:
            self.messages[-1].usage.CopyFrom(self.usage)
        if self.finish_reason:
            self.messages[-1].finish_reason = self.finish_reason
        if self.provider_state:
            self.messages[-1].message.provider_state = self.provider_state

    @property
    def text(self) -> str:
        """The answer text of the closed pieces."""
        return "".join(
            part.text for piece in self.messages if piece.HasField("content_id") for part in piece.message.content
        )

    def _content(self, text: str) -> None:
        if self._kind != "content":
            self._close_text()
            self._names.content += 1
            self._block_id = block_id = f"{self._names.run_id}_c_{self._names.content}"
            start = Delta(content_start=agent_pb2.ContentStart(content_id=block_id, run_id=self._names.run_id))
            self._open("content", self._send("content_start", start), start.timestamp)
        self._text.write(text)
        self._send("content_delta", Delta(content_delta=agent_pb2.ContentDelta(content_id=self._block_id, delta=text)))

    def _reasoning(self, text: str) -> None:
        if self._kind != "reasoning":
            self._close_text()
            self._names.reasoning += 1
            self._block_id = block_id = f"{self._names.run_id}_r_{self._names.reasoning}"
            start = Delta(reasoning_start=agent_pb2.ReasoningStart(reasoning_id=block_id, run_id=self._names.run_id))
            self._open("reasoning", self._send("reasoning_start", start), start.timestamp)
        self._text.write(text)
        self._send(
            "reasoning_delta", Delta(reasoning_delta=agent_pb2.ReasoningDelta(reasoning_id=self._block_id, delta=text))
        )

    def _open(self, kind: str, seq: int, started_at: int) -> None:
        self._kind = kind
        self._text = StringIO()
        self._block_first = seq
        self._block_started = started_at

    def _close_text(self) -> None:
        if not self._kind:
            return
        kind, self._kind = self._kind, ""
        text = self._text.getvalue()
        if kind == "content":
            end = Delta(content_end=agent_pb2.ContentEnd(content_id=self._block_id))
            piece = memory_pb2.LogMessage(content_id=self._block_id, message=llm_pb2.Message(role="assistant"))
            piece.message.content.add(text=text)
        else:
            end = Delta(reasoning_end=agent_pb2.ReasoningEnd(reasoning_id=self._block_id))
            piece = memory_pb2.LogMessage(
                reasoning_id=self._block_id, message=llm_pb2.Message(role="assistant", reasoning_content=text)
            )
        last = self._send(f"{kind}_end", end)
        self._keep(piece, self._block_first, last, self._block_started, end.timestamp)

    def _tool_call(self, fragment: llm_pb2.ToolCallDelta) -> None:
        call = self._by_index.get(fragment.index)
        if call is None:
            call = self._start_call(fragment)
        elif not fragment.arguments:
            return
        if call.ended:
            # Only after whole arguments and another call's start: more of them would be a second set.
            return
        chunk_index = len(call.pieces)
        if fragment.arguments:
            call.pieces.append(fragment.arguments)
            args = agent_pb2.ToolArgs(tool_id=call.tool_id, delta=fragment.arguments, chunk_index=chunk_index)
            self._send("tool_args", Delta(tool_args=args))

    def _start_call(self, fragment: llm_pb2.ToolCallDelta) -> Call:
        self._close_text()
        for earlier in self.calls:
            if not earlier.ended and earlier.pieces and earlier.is_whole:
                self._end_call(earlier)
        tool_id = ids.unique_tool_id(fragment.id, self._names.tool_ids)
        start = agent_pb2.ToolStart(
            tool_id=tool_id, run_id=self._names.run_id, tool_name=fragment.name, tool_type="backend"
        )
        event = Delta(tool_start=start)
        seq = self._send("tool_start", event)
        call = Call(tool_id, fragment.name, seq, event.timestamp)
        self._by_index[fragment.index] = call
        self.calls.append(call)
        return call

    def _end_call(self, call: Call) -> None:
        if call.ended:
            return
        call.ended = True
        arguments = call.arguments
        end = agent_pb2.ToolEnd(tool_id=call.tool_id)
        if call.is_whole:
            end.tool_params = arguments
        event = Delta(tool_end=end)
        last = self._send("tool_end", event)
        piece = memory_pb2.LogMessage(tool_id=call.tool_id, message=llm_pb2.Message(role="assistant"))
        piece.message.tool_calls.add(id=call.tool_id, name=call.name, arguments=arguments)
        self._keep(piece, call.first_seq, last, call.started_at, event.timestamp)

    def _keep(self, piece: memory_pb2.LogMessage, first: int, last: int, started_at: int, ended_at: int) -> None:
        piece.msg_id = self._msg_id
        piece.ts = started_at
        piece.events.first_seq, piece.events.last_seq = first, last
        piece.timing.started_at, piece.timing.ended_at = started_at, ended_at
        self.messages.append(piece)
