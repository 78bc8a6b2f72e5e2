"""Blocks of events: a closed block is sent as its snapshot, an open one as its start and the text so far.

Text deltas, nearly all of a stream, are encoded without objects, byte for byte as protobuf does.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from io import StringIO
from typing import Any

from google.protobuf.message import Message

from headrace.v1 import agent_pb2, llm_pb2
from services.runtime.formats.json_form import is_object

Delta = agent_pb2.AgentDelta

_BYTES = [bytes([number]) for number in range(128)]


def varint(number: int) -> bytes:
    if number < 128:
        return _BYTES[number]
    digits = bytearray()
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    digits.append(number)
    return bytes(digits)


def _encode_key(field_number: int) -> bytes:
    return varint(field_number << 3 | 2)


CONTENT = _encode_key(llm_pb2.LlmDelta.CONTENT_FIELD_NUMBER)[0]
REASONING = _encode_key(llm_pb2.LlmDelta.REASONING_FIELD_NUMBER)[0]

_SEQ, _TIMESTAMP = varint(Delta.SEQ_FIELD_NUMBER << 3), varint(Delta.TIMESTAMP_FIELD_NUMBER << 3)
_KEYS = {
    "content": _encode_key(Delta.CONTENT_DELTA_FIELD_NUMBER),
    "reasoning": _encode_key(Delta.REASONING_DELTA_FIELD_NUMBER),
}
_DELTA = _encode_key(agent_pb2.ContentDelta.DELTA_FIELD_NUMBER)

_high_digits = lru_cache(maxsize=1)(varint)
"""Encodes the digits of a time in milliseconds that change every 16 s."""

_TWO_DIGITS = 1 << 14
"""Smallest number whose varint has more than two bytes."""

_LONGER_HEADS = (3, 4, 5)
"""Head sizes for texts over 127 bytes; no message needs a longer head."""


def text_at(raw: bytes) -> int:
    """Return the text's offset; 0 unless the delta is one piece of valid UTF-8 text."""
    size = len(raw)
    if size < 2 or (raw[0] != CONTENT and raw[0] != REASONING):
        return 0
    if size < 130:
        at = 2 if raw[1] == size - 2 else 0
    else:
        at = next((head for head in _LONGER_HEADS if raw[1:head] == varint(size - head)), 0)
    return at if raw.isascii() or is_utf8(raw[at:]) else 0


def is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


class TextBlock:
    def __init__(self, kind: str, start: Delta) -> None:
        self.kind = kind
        self.start = start
        opened = getattr(start, f"{kind}_start")
        self.block_id: str = getattr(opened, f"{kind}_id")
        self._common = _list_fields(opened)
        self.llm_key = CONTENT if kind == "content" else REASONING
        """First byte of the model's deltas that continue this block."""
        scope = Delta()
        if start.HasField("subagent_id"):
            scope.subagent_id = start.subagent_id
        if start.HasField("task_id"):
            scope.task_id = start.task_id
        self._ids_and_key = scope.SerializeToString() + _KEYS[kind]
        # The fields of a ReasoningDelta have the same numbers.
        self._payload = agent_pb2.ContentDelta(content_id=self.block_id).SerializeToString()
        self._text = bytearray()
        self._last = (start.seq, start.timestamp)
        self._closed = False

    @property
    def text(self) -> str:
        return self._text.decode()

    @property
    def last_seq(self) -> int:
        return self._last[0]

    def add(self, text: bytes, seq: int, timestamp: int) -> bytes:
        """Append a text; return its event, encoded."""
        self._text += text
        self._last = (seq, timestamp)
        block, size = self._payload, len(text)
        payload_size = len(block) + 2 + size  # with the text's key and a size of one byte
        if size > 0 and payload_size < 128 and seq < _TWO_DIGITS < timestamp:  # nearly all: a word or two
            low = (timestamp & 127 | 128, timestamp >> 7 & 127 | 128)
            number = _BYTES[seq] if seq < 128 else bytes((seq & 127 | 128, seq >> 7))
            head = (_SEQ, number, _TIMESTAMP, bytes(low), _high_digits(timestamp >> 14), self._ids_and_key)
            return b"".join((*head, _BYTES[payload_size], block, _DELTA, _BYTES[size], text))
        payload = b"".join((block, _DELTA, varint(size), text)) if text else block
        head = (_SEQ, varint(seq), _TIMESTAMP, varint(timestamp), self._ids_and_key)
        return b"".join((*head, varint(len(payload)), payload))

    def close(self, end: Delta) -> None:
        self._closed = True
        self._last = (end.seq, end.timestamp)

    def since(self, last_seq: int) -> Iterator[Delta]:
        if self._last[0] <= last_seq:
            return
        text = self.text
        if self._closed:
            yield self._make_latest(f"{self.kind}_snapshot", **self._common, text=text)
            return
        yield _move_seq(self.start, last_seq)
        if text:
            block_id: Any = {f"{self.kind}_id": self.block_id}
            yield self._make_latest(f"{self.kind}_delta", **block_id, delta=text)

    def _make_latest(self, kind: str, **fields: Any) -> Delta:
        event = _make_event(self.start, kind, **fields)
        event.seq, event.timestamp = self._last
        return event


class _Output:
    """Consecutive output of a running tool to one stream."""

    def __init__(self, stream: str) -> None:
        self.stream = stream
        self._text = StringIO()
        self._seqs, self._ends = array("q"), array("q")
        """For each piece: its event's seq, and the end of its text."""
        self._last = Delta()

    def add(self, delta: Delta) -> None:
        self._text.write(delta.tool_output.delta)
        self._seqs.append(delta.seq)
        self._ends.append((self._ends[-1] if self._ends else 0) + len(delta.tool_output.delta))
        self._last = delta

    def since(self, last_seq: int) -> Iterator[Delta]:
        known = bisect_right(self._seqs, last_seq)
        if known < len(self._seqs):
            new = self._text.getvalue()[self._ends[known - 1] if known else 0 :]
            tool_id = self._last.tool_output.tool_id
            yield _make_event(self._last, "tool_output", tool_id=tool_id, stream=self.stream, delta=new)


class ToolBlock:
    """A tool's block; a block of an earlier owner starts with its snapshot."""

    def __init__(self, start: Delta) -> None:
        self.start = start
        self.args = StringIO()
        self.args_last: Delta | None = None
        self.end = start if start.HasField("tool_snapshot") else None
        """Has the whole call."""
        self.outputs: list[_Output] = []
        self.result: Delta | None = None
        self.last = start

    def output(self, delta: Delta) -> None:
        stream = delta.tool_output.stream
        if not (self.outputs and self.outputs[-1].stream == stream):
            self.outputs.append(_Output(stream))
        self.outputs[-1].add(delta)

    def finish(self, delta: Delta) -> None:
        self.result = delta
        self.outputs = []

    def since(self, last_seq: int) -> Iterator[Delta]:
        if self.last.seq <= last_seq:
            return
        # A call that the reader has completely is not repeated: it would begin after events that a takeover drops.
        if self.end is None or self.end.seq > last_seq:
            yield from self._call_since(last_seq)
        if self.result is not None:
            yield self.result
        for output in self.outputs:
            yield from output.since(last_seq)

    def _call_since(self, last_seq: int) -> Iterator[Delta]:
        if self.start.HasField("tool_snapshot"):
            yield self.start
            return
        args = self.args.getvalue()
        if self.result is not None:
            if self.end is not None:
                yield self._make_snapshot(self.end, args)
            return
        yield _move_seq(self.start, last_seq)
        if self.args_last is not None and args:
            tool_id = self.start.tool_start.tool_id
            event = _make_event(self.args_last, "tool_args", tool_id=tool_id, delta=args, chunk_index=0)
            yield _move_seq(event, last_seq)
        if self.end is not None:
            yield self.end

    def _make_snapshot(self, end: Delta, args: str) -> Delta:
        fields = _list_fields(self.start.tool_start) | _list_fields(end.tool_end) | _list_arguments(args)
        return _make_event(end, "tool_snapshot", **fields)


class ActionBlock:
    def __init__(self, start: Delta) -> None:
        self.start = start
        self.args = StringIO()
        self.args_last: Delta | None = None
        self.end: Delta | None = None
        self.param: Delta | None = None
        self.result: Delta | None = None
        self.last = start

    def since(self, last_seq: int) -> Iterator[Delta]:
        if self.last.seq <= last_seq:
            return
        is_whole = self.end is not None and self.end.seq <= last_seq  # see ToolBlock.since
        if is_whole or self.start.HasField("action_snapshot"):
            yield from (event for event in (self.start, self.param, self.result) if event and event.seq > last_seq)
            return
        if self.result is not None:
            if self.end is not None:
                yield self._make_snapshot(self.end)
            yield from (event for event in (self.param, self.result) if event is not None)
            return
        yield _move_seq(self.start, last_seq)
        if self.args_last is not None:
            action_id = self.start.action_start.action_id
            args = _make_event(self.args_last, "action_args", action_id=action_id, delta=self.args.getvalue())
            yield _move_seq(args, last_seq)
        yield from (event for event in (self.end, self.param) if event is not None)

    def _make_snapshot(self, end: Delta) -> Delta:
        fields = _list_fields(self.start.action_start) | _list_arguments(self.args.getvalue())
        return _make_event(end, "action_snapshot", **fields)


class SingleEvent:
    """One event, kept serialized, at a fraction of a message's size."""

    __slots__ = ("_event", "_seq")

    def __init__(self, delta: Delta) -> None:
        self._seq = delta.seq
        self._event = delta.SerializeToString()

    def since(self, last_seq: int) -> Iterator[Delta]:
        if self._seq > last_seq:
            yield Delta.FromString(self._event)


def _list_fields(part: Message) -> dict[str, Any]:
    """Return the set fields of a block's part; its snapshot has them under the same names."""
    return {field.name: value for field, value in part.ListFields()}


def _list_arguments(text: str) -> dict[str, Any]:
    """Return the call's arguments as a field of its snapshot; empty if they are not a JSON object."""
    return {"arguments": text or "{}"} if is_object(text or "{}") else {}


def _make_event(like: Delta, kind: str, **fields: Any) -> Delta:
    payload: Any = {kind: fields}
    event = Delta(seq=like.seq, timestamp=like.timestamp, **payload)
    if like.HasField("subagent_id"):
        event.subagent_id = like.subagent_id
    if like.HasField("task_id"):
        event.task_id = like.task_id
    return event


def _move_seq(delta: Delta, last_seq: int) -> Delta:
    """Return `delta` with seq `last_seq` at least, because the reader may have seen that one."""
    if delta.seq >= last_seq:
        return delta
    copy = Delta()
    copy.CopyFrom(delta)
    copy.seq = last_seq
    return copy
