"""A run as the events of OpenAI's Responses API.

`sequence_number` is the run's own seq. One event of the run may give several of these; all but the last of them carry
the number before it, so that a caller who comes back with `starting_after` misses none, and has some of them twice at
worst. A caller who comes back in the middle of a block gets the block's item again, with all its text so far.

An item whose block was lost cannot be taken back: it ends, incomplete and without text, unless it has ended already.
It keeps its `output_index`, and the response has it no more.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Any

import orjson

from headrace.v1 import common_pb2
from services.facade.openai_api import errors
from services.facade.openai_api.events import Called, Closed, Dropped, Ended, Opened, Said, Started, Told
from services.facade.openai_api.output import Block, Output
from services.facade.openai_api.request import Asked
from services.facade.openai_api.responses.answer import build_response, call_item, item, item_id, part
from services.facade.responses.stream_errors import is_final

ENDS = {"completed": "response.completed", "failed": "response.failed"}
"""The others, incomplete and cancelled, are response.incomplete."""


async def stream_events(asked: Asked, things: AsyncIterator[Told], starting_after: int = 0) -> AsyncGenerator[bytes]:
    """The events as frames; those up to `starting_after` are left out."""
    stream = _Events(asked, starting_after)
    async for thing in things:
        for frame in stream.frames(thing):
            yield frame


def build_error_event(failure: common_pb2.Failure, starting_after: int = 0) -> bytes:
    """What a stream says that has failed before its first event."""
    form = errors.of_failure(failure)
    told = {name: form[name] for name in ("code", "message", "param")}
    return _frame({"type": "error"} | told | {"sequence_number": starting_after})


def build_attach_error(failure: common_pb2.Failure, starting_after: int) -> bytes:
    """The same of a run that may live: nothing when coming back may help."""
    return build_error_event(failure, starting_after) if is_final(failure) else b""


class _Events:
    """One stream of events."""

    def __init__(self, asked: Asked, starting_after: int) -> None:
        self._asked = asked
        self._after = starting_after
        self._output = Output()
        self._start: Started | None = None
        self._number = starting_after
        self._announced: set[str] = set()
        """Blocks whose items the caller has."""
        self._index: dict[str, int] = {}

    def frames(self, thing: Told) -> Iterator[bytes]:
        """What one thing gives; nothing when the caller has had it."""
        self._output.add(thing)
        if isinstance(thing, Started):
            self._start = thing
        if isinstance(thing, (Opened, Called)):
            name = thing.block_id if isinstance(thing, Opened) else thing.tool_id
            self._index.setdefault(name, len(self._index))
        if thing.seq <= self._after:
            self._pass_over(thing)
            return
        events = list(self._events(thing))
        for at, event in enumerate(events):
            if at == len(events) - 1:
                self._number = max(self._number, thing.seq)
            event["sequence_number"] = self._number
            yield _frame(event)

    def _pass_over(self, thing: Told) -> None:
        """Note that the caller has had `thing`."""
        if isinstance(thing, Said):
            # Of a block that has only opened it is not known whether the next piece is the first one.
            self._announced.add(thing.block_id)
            self._output.blocks[thing.block_id].unsent(thing.text)
        elif isinstance(thing, Dropped):
            self._forget_lost()

    def _forget_lost(self) -> None:
        """A new owner of the run counts blocks from the last whole one, so a lost one's id may come again."""
        self._announced -= {block.id for block in self._output.lost}

    def _events(self, thing: Told) -> Iterator[dict[str, Any]]:
        match thing:
            case Started():
                yield {"type": "response.created", "response": self._response(None)}
                yield {"type": "response.in_progress", "response": self._response(None)}
            case Opened():
                yield from self._announce(self._output.blocks[thing.block_id])
            case Said():
                block = self._output.blocks[thing.block_id]
                yield from self._announce(block)
                if piece := block.unsent(thing.text):
                    yield self._at(block, _kind(block, "delta"), delta=piece)
            case Closed():
                block = self._output.blocks[thing.block_id]
                yield from self._announce(block)
                yield from self._whole(block)
            case Dropped():
                for block in self._output.lost:
                    if not block.is_closed:
                        yield from self._announce(block)
                        yield from self._whole(Block(block.id, block.kind))
                self._forget_lost()
            case Called():
                yield from self._called(thing)
            case Ended():
                told = self._response(thing)
                yield {"type": ENDS.get(told["status"], "response.incomplete"), "response": told}
            case _:
                pass

    def _announce(self, block: Block) -> Iterator[dict[str, Any]]:
        if block.id in self._announced:
            return
        self._announced.add(block.id)
        empty = Block(block.id, block.kind)
        yield {"type": "response.output_item.added", "output_index": self._index[block.id], "item": item(empty)}
        yield self._at(block, "response.content_part.added", part=part(empty))

    def _whole(self, block: Block) -> Iterator[dict[str, Any]]:
        done = item(block, is_done=True)
        yield self._at(block, _kind(block, "done"), text=block.text)
        yield self._at(block, "response.content_part.done", part=part(block))
        yield {"type": "response.output_item.done", "output_index": self._index[block.id], "item": done}

    def _called(self, call: Called) -> Iterator[dict[str, Any]]:
        start = self._started
        at = {"output_index": self._index[call.tool_id]}
        within = at | {"item_id": f"fc_{call.tool_id}"}
        begun = call_item(call, start.run_id, is_done=False)
        kind = "response.function_call_arguments"
        yield {"type": "response.output_item.added", "item": begun} | at
        yield {"type": f"{kind}.delta", "delta": call.arguments} | within
        yield {"type": f"{kind}.done", "name": call.name, "arguments": call.arguments} | within
        yield {"type": "response.output_item.done", "item": call_item(call, start.run_id)} | at

    def _at(self, block: Block, kind: str, **fields: Any) -> dict[str, Any]:
        place = {"item_id": item_id(block), "output_index": self._index[block.id], "content_index": 0}
        return {"type": kind} | place | fields | ({"logprobs": []} if kind.startswith("response.output_text") else {})

    def _response(self, end: Ended | None) -> dict[str, Any]:
        return build_response(self._asked, self._started, self._output, end)

    @property
    def _started(self) -> Started:
        assert self._start is not None, "a run starts before anything else of it is told"
        return self._start


def _frame(event: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), orjson.dumps(event))


def _kind(block: Block, what: str) -> str:
    return f"response.{'reasoning_text' if block.kind == 'reasoning' else 'output_text'}.{what}"
