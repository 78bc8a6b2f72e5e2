"""What a live run has said, folded: enough to bring any reader up to date, in memory the size of the text.

A closed block is kept as its snapshot, an open one as its start and its text so far, anything else as it is. A
delta costs one write into a buffer of characters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import StringIO
from typing import Any

from headrace.v1 import agent_pb2

Delta = agent_pb2.AgentDelta


class _Text:
    """A reasoning or content block."""

    def __init__(self, kind: str, start: Delta) -> None:
        self.kind = kind
        self.start = start
        self.text = StringIO()
        self.last = start
        self.closed = False

    def since(self, last_seq: int) -> Iterator[Delta]:
        if self.last.seq <= last_seq:
            return
        text = self.text.getvalue()
        start = getattr(self.start, f"{self.kind}_start")
        block = {f"{self.kind}_id": getattr(start, f"{self.kind}_id")}
        if self.closed:
            yield _event(self.last, f"{self.kind}_snapshot", **block, run_id=start.run_id, text=text)
            return
        yield _again(self.start, last_seq)
        if text:
            yield _event(self.last, f"{self.kind}_delta", **block, delta=text)


class _Tool:
    """A tool call, until its result: arguments and output so far."""

    def __init__(self, start: Delta) -> None:
        self.start = start
        self.args = StringIO()
        self.args_last: Delta | None = None
        self.end: Delta | None = None
        self.outputs: list[tuple[str, StringIO, Delta]] = []
        self.result: Delta | None = None
        self.last = start

    def output(self, delta: Delta) -> None:
        output = delta.tool_output
        if self.outputs and self.outputs[-1][0] == output.stream:
            self.outputs[-1] = (output.stream, self.outputs[-1][1], delta)
        else:
            self.outputs.append((output.stream, StringIO(), delta))
        self.outputs[-1][1].write(output.delta)

    def finish(self, delta: Delta) -> None:
        self.result = delta
        self.outputs = []

    def since(self, last_seq: int) -> Iterator[Delta]:
        if self.last.seq <= last_seq:
            return
        tool_id = self.start.tool_start.tool_id
        args = self.args.getvalue()
        if self.result is not None:
            if self.end is not None and self.end.seq > last_seq:
                yield self._snapshot(self.end, args)
            yield self.result
            return
        yield _again(self.start, last_seq)
        if self.args_last is not None and args:
            yield _again(_event(self.args_last, "tool_args", tool_id=tool_id, delta=args, chunk_index=0), last_seq)
        if self.end is not None:
            yield _again(self.end, last_seq)
        for stream, text, last in self.outputs:
            yield _again(_event(last, "tool_output", tool_id=tool_id, stream=stream, delta=text.getvalue()), last_seq)

    def _snapshot(self, end: Delta, args: str) -> Delta:
        start = self.start.tool_start
        fields: dict[str, Any] = {"tool_id": start.tool_id, "tool_name": start.tool_name}
        fields |= {
            name: getattr(start, name) for name in ("tool_type", "tool_api", "description") if start.HasField(name)
        }
        if end.tool_end.HasField("tool_params"):
            fields |= {"tool_params": end.tool_end.tool_params, "arguments": args}
        return _event(end, "tool_snapshot", **fields)


class _Once:
    """An event that stands for itself."""

    def __init__(self, delta: Delta) -> None:
        self.delta = delta

    def since(self, last_seq: int) -> Iterator[Delta]:
        if self.delta.seq > last_seq:
            yield self.delta


class Journal:
    """The folded events of one run. Owned by its feed."""

    def __init__(self) -> None:
        self._entries: list[_Text | _Tool | _Once] = []
        self._open: dict[str, _Text | _Tool] = {}
        """By block id; a tool stays here until its result."""
        self._note: dict[str, Callable[[Delta], None]] = {
            "content_delta": lambda delta: self._text(delta.content_delta.content_id, delta.content_delta.delta, delta),
            "reasoning_delta": lambda delta: self._text(
                delta.reasoning_delta.reasoning_id, delta.reasoning_delta.delta, delta
            ),
            "content_start": lambda delta: self._start(delta.content_start.content_id, _Text("content", delta)),
            "reasoning_start": lambda delta: self._start(delta.reasoning_start.reasoning_id, _Text("reasoning", delta)),
            "content_end": lambda delta: self._close(delta.content_end.content_id, delta),
            "reasoning_end": lambda delta: self._close(delta.reasoning_end.reasoning_id, delta),
            "tool_start": lambda delta: self._start(delta.tool_start.tool_id, _Tool(delta)),
            "tool_args": self._args,
            "tool_end": self._tool_end,
            "tool_output": self._output,
            "tool_result": self._result,
        }

    def note(self, kind: str, delta: Delta) -> None:
        """Take the next event of the run; `kind` is its payload's field."""
        note = self._note.get(kind)
        if note is None:
            self._entries.append(_Once(delta))
        else:
            note(delta)

    def since(self, last_seq: int) -> list[Delta]:
        """What a reader that has everything up to `last_seq` needs, ordered by seq.

        An open block is opened again, with a start that has its own seq or `last_seq`, whichever is later: a reader
        that leaves in between resumes from there.
        """
        events = [delta for entry in self._entries for delta in entry.since(last_seq)]
        return sorted(events, key=lambda delta: delta.seq)

    def _start(self, block_id: str, entry: _Text | _Tool) -> None:
        self._open[block_id] = entry
        self._entries.append(entry)

    def _text(self, block_id: str, text: str, delta: Delta) -> None:
        entry = self._open[block_id]
        assert isinstance(entry, _Text), "a delta lies between its block's start and end"
        entry.text.write(text)
        entry.last = delta

    def _close(self, block_id: str, delta: Delta) -> None:
        entry = self._open.pop(block_id)
        assert isinstance(entry, _Text), "an end closes its own block"
        entry.closed = True
        entry.last = delta

    def _tool(self, tool_id: str, delta: Delta) -> _Tool:
        entry = self._open[tool_id]
        assert isinstance(entry, _Tool), "tool events follow their tool.start"
        entry.last = delta
        return entry

    def _args(self, delta: Delta) -> None:
        entry = self._tool(delta.tool_args.tool_id, delta)
        entry.args.write(delta.tool_args.delta)
        entry.args_last = delta

    def _tool_end(self, delta: Delta) -> None:
        self._tool(delta.tool_end.tool_id, delta).end = delta

    def _output(self, delta: Delta) -> None:
        self._tool(delta.tool_output.tool_id, delta).output(delta)

    def _result(self, delta: Delta) -> None:
        self._tool(delta.tool_result.tool_id, delta).finish(delta)
        del self._open[delta.tool_result.tool_id]


def _event(like: Delta, kind: str, **fields: Any) -> Delta:
    """An event with the envelope of `like` and another payload."""
    payload: Any = {kind: fields}
    event = Delta(seq=like.seq, timestamp=like.timestamp, **payload)
    if like.HasField("subagent_id"):
        event.subagent_id = like.subagent_id
    if like.HasField("task_id"):
        event.task_id = like.task_id
    return event


def _again(delta: Delta, last_seq: int) -> Delta:
    """`delta`, for a reader that may have seen it: its seq never lies before `last_seq`."""
    if delta.seq >= last_seq:
        return delta
    copy = Delta()
    copy.CopyFrom(delta)
    copy.seq = last_seq
    return copy
