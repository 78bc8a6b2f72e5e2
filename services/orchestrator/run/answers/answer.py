"""Converts each delta of a model's answer into one event immediately (docs/reference/events.md).

Hidden text is only collected; if a tool call follows, the text was not the answer and is sent then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from google.protobuf.message import Message

from headrace.v1 import agent_pb2, common_pb2, llm_pb2, memory_pb2
from services.orchestrator import ids
from services.orchestrator.run.answers.call import (
    Call,
    args_event,
    begin,
    describe_tool,
    end_event,
    restore_call,
    start_event,
)
from services.orchestrator.run.answers.toolbox import Toolbox, resolve
from services.orchestrator.run.events import blocks
from services.orchestrator.run.events.blocks import TextBlock
from services.orchestrator.run.events.feed import Feed
from services.runtime.clock import now_ms

Publish: TypeAlias = Callable[[Message], agent_pb2.AgentDelta]


@dataclass(slots=True)
class BlockNames:
    run_id: str
    reasoning: int = 0
    content: int = 0
    tool_ids: set[str] = field(default_factory=set[str])
    """Ids used so far; some providers count from call_0 in every answer."""

    @classmethod
    def after(cls, run_id: str, messages: Iterable[memory_pb2.LogMessage]) -> BlockNames:
        names = cls(run_id)
        for message in messages:
            names.reasoning = max(names.reasoning, _read_number(message.reasoning_id))
            names.content = max(names.content, _read_number(message.content_id))
        return names


def _read_number(block_id: str) -> int:
    number = block_id.rpartition("_")[2]
    return int(number) if number.isdecimal() else 0


def is_draft(piece: memory_pb2.LogMessage) -> bool:
    return piece.message.role == "assistant" and bool(piece.message.content) and not piece.HasField("content_id")


class Answer:
    """The answer of one StreamChat call, used by one task."""

    def __init__(
        self,
        feed: Feed,
        publish: Publish,
        names: BlockNames,
        tools: Toolbox,
        calls_max: int,
        hidden: Collection[str] = (),
        content_start: agent_pb2.ContentStart | None = None,
    ) -> None:
        """`content_start` holds the fields that all content blocks of the answer share."""
        self._feed = feed
        self.from_seq = feed.seq
        self._publish = publish
        self._names = names
        self._tools = tools
        self._calls_max = calls_max
        self._content_start = content_start or agent_pb2.ContentStart()
        self._msg_id = ids.new_msg_id()
        self._block: TextBlock | None = None
        self._draft: list[bytes] | None = [] if "content" in hidden else None
        self._thought: list[bytes] | None = [] if "reasoning" in hidden else None
        self._by_index: dict[int, Call] = {}
        self.calls: list[Call] = []
        self._left_out = 0
        """Number of calls beyond the limit, which are dropped."""
        self.messages: list[memory_pb2.LogMessage] = []
        self.usage: common_pb2.Usage | None = None
        self.finish_reason = ""
        self.provider_state = ""
        self.media: list[llm_pb2.LlmMedia] = []
        """Images and audio that are not stored yet."""
        self.model = ""
        """The model that was called last, as provider/model."""
        self.was_asked = False
        """Whether the gateway has sent the request to a provider."""

    def take(self, raw: bytes) -> None:
        block = self._block
        if (
            block is not None
            and 2 < len(raw) < 130
            and raw[0] == block.llm_key
            and raw[1] == len(raw) - 2
            and (raw.isascii() or blocks.is_utf8(raw[2:]))
        ):
            # Nearly every delta: a short text that continues the open block.
            self._feed.write(block, raw[2:])
            return
        at = blocks.text_at(raw)
        if not at:
            self._take_message(llm_pb2.LlmDelta.FromString(raw))
        elif raw[0] == blocks.CONTENT:
            self._add_content(raw[at:])
        else:
            self._add_reasoning(raw[at:])

    def _take_message(self, delta: llm_pb2.LlmDelta) -> None:
        kind = delta.WhichOneof("delta")
        if kind == "content":
            self._add_content(delta.content.encode())
        elif kind == "reasoning":
            self._add_reasoning(delta.reasoning.encode())
        elif kind == "tool_call":
            self._add_fragment(delta.tool_call)
        elif kind == "usage":
            self.usage = delta.usage
        elif kind == "finish":
            self.finish_reason = delta.finish.reason
        elif kind == "provider_state":
            self.provider_state = delta.provider_state
        elif kind == "media":
            self.media.append(delta.media)
        elif kind == "started":
            # A further attempt: the earlier one's provider state belongs to another answer.
            self.was_asked, self.provider_state = True, ""
            self.model = f"{delta.started.provider}/{delta.started.model}"

    def end_text(self) -> str:
        """End the open block; return all text of the answer, hidden text included."""
        self._close_text()
        return self.text + b"".join(self._draft or ()).decode()

    def release_draft(self, text: str) -> None:
        """Send `text` as the answer in place of the hidden text."""
        if self._draft is not None:
            self._draft = None
            self._add_content(text.encode())

    def add_paragraph(self, text: str) -> None:
        """Append a paragraph to the text."""
        has_text = self._draft or self.text or (self._block is not None and self._block.kind == "content")
        self._add_content(f"\n\n{text}".encode() if has_text else text.encode())

    def recall(self, pieces: list[memory_pb2.LogMessage]) -> None:
        self.messages = pieces
        self.calls = [self._recall_call(piece) for piece in pieces if piece.message.tool_calls]
        last = pieces[-1]
        self.usage = last.usage if last.HasField("usage") else None
        self.finish_reason, self.provider_state = last.finish_reason, last.message.provider_state

    def close(self) -> None:
        """End the answer, complete or cut; its last piece gets usage and provider state."""
        self._close_text()
        for call in self.calls:
            self._end_call(call)
        if self._left_out:
            self.calls[-1].note = f"{self._left_out} more calls were left out: an answer may have {self._calls_max}"
        if self._thought:
            thought = llm_pb2.Message(role="assistant", reasoning_content=b"".join(self._thought).decode())
            self.messages.insert(0, self._make_unsent_piece(thought))
        if self._draft:
            draft = llm_pb2.Message(role="assistant")
            draft.content.add(text=b"".join(self._draft).decode())
            self.messages.append(self._make_unsent_piece(draft))
        if not self.messages:
            return
        if self.usage is not None:
            self.messages[-1].usage.CopyFrom(self.usage)
        if self.finish_reason:
            self.messages[-1].finish_reason = self.finish_reason
        if self.provider_state:
            self.messages[-1].message.provider_state = self.provider_state

    @property
    def is_empty(self) -> bool:
        return not (self._block or self.messages or self.calls)

    @property
    def progress(self) -> tuple[int, ...]:
        """A value that changes with each part of the answer that arrives."""
        hidden = len(self._draft or ()) + len(self._thought or ())
        arguments = sum(len(call.pieces) for call in self.calls)
        last_seq = self._block.last_seq if self._block else 0
        return (last_seq, len(self.messages), len(self.calls), arguments, hidden, len(self.media))

    @property
    def has_begun(self) -> bool:
        return not self.is_empty or bool(self._draft or self._thought) or self.usage is not None

    @property
    def text(self) -> str:
        return "".join(part.text for piece in self.messages for part in piece.message.content)

    @property
    def size_bytes(self) -> int:
        """Size of everything received, including hidden text, in bytes."""
        hidden = sum(map(len, [*(self._draft or ()), *(self._thought or ())]))
        calls = sum(len(piece) for call in self.calls for piece in call.pieces)
        text = len(self._block.text) if self._block else 0
        return hidden + calls + text + sum(piece.message.ByteSize() for piece in self.messages)

    @property
    def is_draft(self) -> bool:
        return any(is_draft(piece) for piece in self.messages)

    @property
    def hidden_reasoning(self) -> str:
        return "".join(piece.message.reasoning_content for piece in self.messages if not piece.HasField("reasoning_id"))

    def _add_content(self, text: bytes) -> None:
        if self._draft is not None:
            self._close_text()
            self._draft.append(text)
            return
        block = self._block
        if block is None or block.kind != "content":
            self._close_text()
            self._names.content += 1
            block_id = f"{self._names.run_id}_c_{self._names.content}"
            start = agent_pb2.ContentStart(content_id=block_id, run_id=self._names.run_id)
            start.MergeFrom(self._content_start)
            block = self._open_block(start, block_id)
        self._feed.write(block, text)

    def _add_reasoning(self, text: bytes) -> None:
        if self._thought is not None:
            self._thought.append(text)
            return
        block = self._block
        if block is None or block.kind != "reasoning":
            self._close_text()
            self._names.reasoning += 1
            block_id = f"{self._names.run_id}_r_{self._names.reasoning}"
            block = self._open_block(
                agent_pb2.ReasoningStart(reasoning_id=block_id, run_id=self._names.run_id), block_id
            )
        self._feed.write(block, text)

    def _open_block(self, start: Message, block_id: str) -> TextBlock:
        self._publish(start)
        self._block = self._feed.open_text(block_id)
        return self._block

    def _close_text(self) -> None:
        block, self._block = self._block, None
        if block is None:
            return
        piece = memory_pb2.LogMessage(message=llm_pb2.Message(role="assistant"))
        if block.kind == "content":
            end = self._publish(agent_pb2.ContentEnd(content_id=block.block_id))
            piece.content_id = block.block_id
            piece.message.content.add(text=block.text)
        else:
            end = self._publish(agent_pb2.ReasoningEnd(reasoning_id=block.block_id))
            piece.reasoning_id = block.block_id
            piece.message.reasoning_content = block.text
        self._keep_piece(piece, block.start.seq, end.seq, block.start.timestamp, end.timestamp)

    def _add_fragment(self, fragment: llm_pb2.ToolCallDelta) -> None:
        call = self._by_index.get(fragment.index)
        if call is None and len(self.calls) >= self._calls_max:
            self._left_out += bool(fragment.name)
            return
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
            self._publish(args_event(call, fragment.arguments, chunk_index))

    def _start_call(self, fragment: llm_pb2.ToolCallDelta) -> Call:
        draft, self._draft = self._draft, None
        for text in draft or ():
            self._add_content(text)
        self._close_text()
        for earlier in self.calls:
            if not earlier.ended and earlier.pieces and earlier.is_whole:
                self._end_call(earlier)
        call_id = ids.unique_tool_id(self._names.run_id, fragment.id, self._names.tool_ids)
        tool = self._tools.find(fragment.name)
        call = begin(self._names.run_id, call_id, fragment.name if tool is None else tool.name, tool)
        event = self._publish(start_event(call, self._names.run_id))
        call.first_seq, call.started_at = event.seq, event.timestamp
        self._by_index[fragment.index] = call
        self.calls.append(call)
        return call

    def _recall_call(self, piece: memory_pb2.LogMessage) -> Call:
        asked = piece.message.tool_calls[0]
        call = restore_call(asked, piece, self._tools.find(asked.name))
        self._names.tool_ids.add(call.call_id)
        if call.tool is not None and call.is_whole and not call.params:
            resolve(call, self._tools)
        return call

    def _end_call(self, call: Call) -> None:
        if call.ended:
            return
        call.ended = True
        if call.tool is not None and call.is_whole:
            resolve(call, self._tools)
        event = self._publish(end_event(call))
        piece = memory_pb2.LogMessage(message=llm_pb2.Message(role="assistant"), tool=describe_tool(call))
        call.keep_in(piece)
        piece.message.tool_calls.add(id=call.call_id, name=call.name, arguments=call.arguments)
        if call.params:
            piece.tool_params = call.params
        self._keep_piece(piece, call.first_seq, event.seq, call.started_at, event.timestamp)

    def _make_unsent_piece(self, message: llm_pb2.Message) -> memory_pb2.LogMessage:
        return memory_pb2.LogMessage(msg_id=self._msg_id, ts=now_ms(), message=message)

    def _keep_piece(self, piece: memory_pb2.LogMessage, first: int, last: int, started_at: int, ended_at: int) -> None:
        piece.msg_id = self._msg_id
        piece.ts = started_at
        piece.events.first_seq, piece.events.last_seq = first, last
        piece.timing.started_at, piece.timing.ended_at = started_at, ended_at
        self.messages.append(piece)
