"""Encodes a run as events of OpenAI's Responses API.

`sequence_number` is the run's seq. When one run event becomes several, all except the last carry the previous
number: a caller who resumes with `starting_after` misses none and at worst gets some twice.

The item of a lost block cannot be withdrawn: unless it has ended, it ends incomplete and empty. It keeps its
`output_index`, but the response omits it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from headrace.runs.parts import Block, BlockBegun, BlockEnded, BlocksLost, TextAdded
from headrace.v1 import common_pb2
from services.facade.openai_api import errors
from services.facade.openai_api.event_mapper import TEXTS
from services.facade.openai_api.events import FunctionCall, Output, RunEnded, RunEvent, RunStarted, get_kind, make_empty
from services.facade.openai_api.request import AgentRequest
from services.facade.openai_api.responses.answer import (
    build_call_item,
    build_item,
    build_part,
    build_response,
    format_item_id,
)
from services.facade.responses.stream_errors import is_final_failure

ENDS = {"completed": "response.completed", "failed": "response.failed"}
"""All other statuses end in response.incomplete."""


def build_error_event(failure: common_pb2.Failure, starting_after: int = 0) -> bytes:
    form = errors.build_failure_error(failure)
    fields = {name: form[name] for name in ("code", "message", "param")}
    return _encode_frame({"type": "error"} | fields | {"sequence_number": starting_after})


def build_attach_error(failure: common_pb2.Failure, starting_after: int) -> bytes:
    """Return the frames for the failure of an attached stream; empty if attaching again may help."""
    return build_error_event(failure, starting_after) if is_final_failure(failure) else b""


class EventStream:
    """The frames of the events after `starting_after`."""

    def __init__(self, request: AgentRequest, starting_after: int = 0) -> None:
        self._request = request
        self._after = starting_after
        self._output = Output()
        self._start: RunStarted | None = None
        self._number = starting_after
        self._announced: set[str] = set()
        self._index: dict[str, int] = {}

    def map_event(self, event: RunEvent) -> Iterator[bytes]:
        """Yield the frames of one event; none if the caller already has it."""
        self._output.apply_event(event)
        if isinstance(event, RunStarted):
            self._start = event
        if isinstance(event, (BlockBegun, FunctionCall)):
            name = event.block.id if isinstance(event, BlockBegun) else event.tool_id
            self._index.setdefault(name, len(self._index))
        if event.seq <= self._after:
            self._skip_event(event)
            return
        events = list(self._build_events(event))
        for at, payload in enumerate(events):
            if at == len(events) - 1:
                self._number = max(self._number, event.seq)
            payload["sequence_number"] = self._number
            yield _encode_frame(payload)

    def _skip_event(self, event: RunEvent) -> None:
        if isinstance(event, TextAdded):
            # For a block that has only been opened, it is unknown whether the caller has seen its first piece.
            self._announced.add(event.block.id)
        elif isinstance(event, BlocksLost):
            self._forget_lost(event)

    def _forget_lost(self, event: BlocksLost) -> None:
        """Forget lost blocks: a new owner of the run may reuse their ids."""
        self._announced -= {block.id for block in event.blocks}

    def _build_events(self, event: RunEvent) -> Iterator[dict[str, Any]]:
        match event:
            case RunStarted():
                yield {"type": "response.created", "response": self._build_response(None)}
                yield {"type": "response.in_progress", "response": self._build_response(None)}
            case BlockBegun():
                yield from self._announce_block(event.block)
            case TextAdded():
                yield from self._announce_block(event.block)
                if event.new:
                    yield self._build_part_event(event.block, _event_type(event.block, "delta"), delta=event.new)
            case BlockEnded():
                yield from self._announce_block(event.block)
                yield from self._finish_block(event.block)
            case BlocksLost():
                for block in event.blocks:
                    if block.kind in TEXTS and not block.is_complete:
                        yield from self._announce_block(block)
                        yield from self._finish_block(make_empty(block))
                self._forget_lost(event)
            case FunctionCall():
                yield from self._build_call(event)
            case RunEnded():
                response = self._build_response(event)
                yield {"type": ENDS.get(response["status"], "response.incomplete"), "response": response}
            case _:
                pass

    def _announce_block(self, block: Block) -> Iterator[dict[str, Any]]:
        if block.id in self._announced:
            return
        self._announced.add(block.id)
        empty = make_empty(block)
        yield {"type": "response.output_item.added", "output_index": self._index[block.id], "item": build_item(empty)}
        yield self._build_part_event(block, "response.content_part.added", part=build_part(empty))

    def _finish_block(self, block: Block) -> Iterator[dict[str, Any]]:
        done = build_item(block, is_done=True)
        yield self._build_part_event(block, _event_type(block, "done"), text=block.text)
        yield self._build_part_event(block, "response.content_part.done", part=build_part(block))
        yield {"type": "response.output_item.done", "output_index": self._index[block.id], "item": done}

    def _build_call(self, call: FunctionCall) -> Iterator[dict[str, Any]]:
        start = self._run
        at = {"output_index": self._index[call.tool_id]}
        within = at | {"item_id": f"fc_{call.tool_id}"}
        item = build_call_item(call, start.run_id, is_done=False)
        kind = "response.function_call_arguments"
        yield {"type": "response.output_item.added", "item": item} | at
        yield {"type": f"{kind}.delta", "delta": call.arguments} | within
        yield {"type": f"{kind}.done", "name": call.name, "arguments": call.arguments} | within
        yield {"type": "response.output_item.done", "item": build_call_item(call, start.run_id)} | at

    def _build_part_event(self, block: Block, kind: str, **fields: Any) -> dict[str, Any]:
        place = {"item_id": format_item_id(block), "output_index": self._index[block.id], "content_index": 0}
        return {"type": kind} | place | fields | ({"logprobs": []} if kind.startswith("response.output_text") else {})

    def _build_response(self, end: RunEnded | None) -> dict[str, Any]:
        return build_response(self._request, self._run, self._output, end)

    @property
    def _run(self) -> RunStarted:
        assert self._start is not None, "a run starts before its other events"
        return self._start


def _encode_frame(payload: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (payload["type"].encode(), orjson.dumps(payload))


def _event_type(block: Block, what: str) -> str:
    return f"response.{'reasoning_text' if get_kind(block) == 'reasoning' else 'output_text'}.{what}"
