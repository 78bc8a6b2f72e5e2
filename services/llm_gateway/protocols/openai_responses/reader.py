"""Reads the answer: each event becomes deltas at once.

https://developers.openai.com/api/reference/resources/responses/streaming-events (2026-11). The provider requires an
answer's items back in their order, with thoughts and encrypted parts unchanged
(https://developers.openai.com/api/docs/guides/reasoning, "Keeping reasoning items in context", 2026-11).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Final

import msgspec
import orjson

from headrace.v1 import common_pb2
from services.llm_gateway.fitting.provider_state import CALL, CHARS
from services.llm_gateway.protocols.common.answer_reader import AnswerReader, AnswerSource, Channel, SendBytes
from services.llm_gateway.protocols.common.reports import drop_impossible, translate_finish
from services.llm_gateway.protocols.common.tool_calls import CallIds, read_arguments
from services.llm_gateway.provider_errors.refusal import UNREADABLE, ErrorObject

FRAME_BYTES_MAX = 16 * 1024 * 1024
"""Maximum size of a frame; the last one repeats the whole answer and the tools."""

DONE: Final = b"[DONE]"

TEXT = ("response.output_text.delta", "response.refusal.delta")
THOUGHT = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")
WHOLE: Mapping[str, Channel] = {
    "response.output_text.done": "content",
    "response.refusal.done": "content",
    "response.reasoning_summary_text.done": "reasoning",
    "response.reasoning_text.done": "reasoning",
}
"""Ends of texts, which repeat them; a short text may come without deltas
(https://github.com/pipecat-ai/pipecat/pull/5309, 2026-08)."""

ENDS = ("response.completed", "response.done", "response.incomplete", "response.failed", "response.cancelled")

KIND: Final = "output_items"

REASONING: Final = "reasoning"

_OF_MESSAGE = ("type", "id", "role", "status", "phase")
_OF_CALL = ("type", "id", "status")


class InputDetails(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class OutputDetails(msgspec.Struct):
    reasoning_tokens: int | None = None


class UsageReport(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: InputDetails | None = None
    output_tokens_details: OutputDetails | None = None


class Incomplete(msgspec.Struct):
    reason: str | None = None


class Response(msgspec.Struct):
    status: str | None = None
    output: list[msgspec.Raw] | None = None
    usage: UsageReport | None = None
    incomplete_details: Incomplete | None = None
    error: ErrorObject | str | None = None


class Content(msgspec.Struct):
    text: str | None = None
    refusal: str | None = None


class Item(msgspec.Struct):
    type: str = ""
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: msgspec.Raw = msgspec.Raw()
    """A text; some servers send an object."""

    content: list[Content] | None = None
    summary: list[Content] | None = None


class Event(msgspec.Struct, gc=False):
    type: str = ""
    delta: str | None = None
    text: str | None = None
    """The whole text, at its end; a refusal's is in the next."""

    refusal: str | None = None
    arguments: msgspec.Raw = msgspec.Raw()
    """The whole arguments, at their end."""

    output_index: int | None = None
    item_id: str | None = None
    summary_index: int | None = None
    item: msgspec.Raw = msgspec.Raw()
    """An Item in raw form."""

    response: Response | None = None
    error: ErrorObject | str | None = None
    message: str | None = None
    """Set in an event of type `error`, like the next two."""

    code: str | int | None = None
    param: msgspec.Raw = msgspec.Raw()
    object: str | None = None
    """The response, if the whole answer arrived instead of a stream."""


decode_event = msgspec.json.Decoder(Event).decode
decode_item = msgspec.json.Decoder(Item).decode
decode_response = msgspec.json.Decoder(Response).decode


class ResponsesReader(AnswerReader):
    __slots__ = ("_calls", "_done", "_ids", "_items", "_places", "_status", "_told", "_usage", "_with_arguments")

    def __init__(self, source: AnswerSource, give: SendBytes) -> None:
        super().__init__(source, give, FRAME_BYTES_MAX)
        self._ids = CallIds(source.call_ids)
        self._items = AnswerItems()
        self._calls: dict[Hashable, int] = {}
        """Our index of each call, by the item's position."""
        self._with_arguments: set[Hashable] = set()
        self._told: set[Hashable] = set()
        """Items for which deltas of text or thoughts have arrived."""
        self._done: set[Hashable] = set()
        self._places: dict[int, Hashable] = {}
        """Position of the newest item, by the provider's index: some gateways number a thought and a call alike."""
        self._status: str | None = None
        """The finish reason in the provider's words."""
        self._usage: UsageReport | None = None

    def _read_frame(self, data: bytes, event: str | None, frame_id: str | None) -> None:
        if data == DONE:
            self.is_over = True
            self._flush_held()
            return
        try:
            payload = decode_event(data)
        except UNREADABLE as error:
            payload = self._decode_again(Event, data, error)
            if payload is None:
                return
        kind = payload.type
        if kind in TEXT:
            self._read_text(self._find_place(payload), "content", payload.delta or "")
        elif kind in THOUGHT:
            self._read_text(self._find_place(payload), "reasoning", payload.delta or "")
        elif kind == "response.function_call_arguments.delta":
            self._read_arguments(self._find_place(payload), payload.delta or "")
        elif kind in WHOLE:
            place = self._find_place(payload)
            if self._told.isdisjoint((place, None)):
                self._read_text(place, WHOLE[kind], payload.text or payload.refusal or "")
        elif kind == "response.function_call_arguments.done":
            place = self._find_place(payload)
            if place not in self._with_arguments:
                self._read_arguments(place, read_arguments(payload.arguments))
        elif kind == "response.reasoning_summary_part.added" and payload.summary_index:
            self._read_text(self._find_place(payload), "reasoning", "\n\n")
        elif kind in ("response.output_item.added", "response.output_item.done") and payload.item:
            is_done, index = kind.endswith("done"), payload.output_index
            if not is_done and index is not None:
                self._places[index] = object() if index in self._places else index
            self._read_item(self._find_place(payload), bytes(payload.item), is_done=is_done, streamed={})
        elif kind in ENDS and payload.response is not None:
            self._read_end(payload.response, kind.removeprefix("response."))
        elif payload.error or kind == "error":
            raise self._make_provider_error(
                payload.error or ErrorObject(payload.message, code=payload.code, param=payload.param)
            )
        elif payload.object == "response":
            self._read_whole(data)

    def _read_whole(self, data: bytes) -> None:
        try:
            response = decode_response(data)
        except UNREADABLE as error:
            response = self._decode_again(Response, data, error)
        if response is not None:
            self._read_end(response, "")

    def _find_place(self, event: Event) -> Hashable:
        index = event.output_index
        return event.item_id if index is None else self._places.get(index, index)

    def _read_item(self, place: Hashable, raw: bytes, *, is_done: bool, streamed: Mapping[Hashable, str]) -> None:
        """Read a new or complete item, unless items of its type were `streamed` at other places."""
        try:
            item = decode_item(raw)
        except UNREADABLE as error:
            item = self._decode_again(Item, raw, error)
            if item is None:
                return
        place = item.id if place is None else place
        if item.type in streamed.values() and item.type != streamed.get(place):
            return
        if item.type == "function_call" and place not in self._calls:
            self._begin_call(place, item)
        if not is_done or place in self._done:
            return
        self._done.add(place)
        if item.type == "function_call" and place not in self._with_arguments:
            self._read_arguments(place, read_arguments(item.arguments))
        elif item.type in ("message", "reasoning") and place not in self._told:
            for piece in item.content or item.summary or ():
                channel = "content" if item.type == "message" else "reasoning"
                self._read_text(place, channel, piece.text or piece.refusal or "")
        self._items.add_item(place, item.type, raw)

    def _begin_call(self, place: Hashable, item: Item) -> None:
        index = self._calls[place] = len(self._calls)
        self._items.begin_call(place)
        arguments = read_arguments(item.arguments)
        if arguments:
            self._with_arguments.add(place)
        self._send_call(index, arguments, self._ids.make_unique(item.call_id or ""), item.name or "")

    def _read_arguments(self, place: Hashable, text: str) -> None:
        if (index := self._calls.get(place)) is not None:
            self._with_arguments.add(place)
            self._add_arguments(index, text)

    def _read_text(self, place: Hashable, channel: Channel, text: str) -> None:
        self._told.add(place)
        text = self._add_text(channel, text)
        if channel == "content":
            self._items.count_text(place, text)

    def _read_end(self, response: Response, kind: str) -> None:
        # Some servers count the whole answer's items otherwise than those of the stream.
        streamed = self._items.list_types()
        for place, raw in enumerate(response.output or ()):
            self._read_item(place, bytes(raw), is_done=True, streamed=streamed)
        if (usage := response.usage) is not None:
            drop_impossible(usage)
            self._usage = usage
        status = response.status or kind
        if status == "failed" or (response.error and status != "completed"):
            self._flush_held()
            raise self._make_provider_error(response.error or ErrorObject("the response failed"))
        details = response.incomplete_details
        self._status = (details.reason if details is not None else None) or status
        self.has_finish = self.is_over = True
        self._flush_held()

    def _flush_held(self) -> None:
        self._flush_halves()
        if items := self._items.build_items():
            self._send_state({KIND: items})
        self._items = AnswerItems()

    def _map_finish_reason(self) -> str | None:
        return None if self._status is None else translate_finish(self._status, has_calls=bool(self._calls))

    def build_usage(self) -> common_pb2.Usage:
        report = self._usage
        if report is None:
            return common_pb2.Usage(output_tokens=self.deltas, model_calls=1, estimated=True)
        usage = common_pb2.Usage(
            input_tokens=report.input_tokens or 0, output_tokens=report.output_tokens or 0, model_calls=1
        )
        if (read := report.input_tokens_details) is not None:
            if read.cached_tokens is not None:
                usage.cached_tokens = read.cached_tokens
            if read.cache_write_tokens:
                usage.cache_write_tokens = read.cache_write_tokens
        if (written := report.output_tokens_details) is not None and written.reasoning_tokens is not None:
            usage.reasoning_tokens = written.reasoning_tokens
        return usage


class AnswerItems:
    def __init__(self) -> None:
        self._items: dict[Hashable, dict[str, Any]] = {}
        self._is_needed = False
        self._lacks_thought = False
        """Whether a thought cannot be sent back; items with ids would be refused without it."""

    def list_types(self) -> Mapping[Hashable, str]:
        return {key: str(item.get("type")) for key, item in self._items.items()}

    def count_text(self, key: Hashable, text: str) -> None:
        item = self._items.setdefault(key, {"type": "message", "role": "assistant", CHARS: 0})
        if CHARS in item:
            item[CHARS] += len(text)

    def begin_call(self, key: Hashable) -> None:
        self._items.setdefault(key, {"type": "function_call", CALL: True})

    def add_item(self, key: Hashable, kind: str, raw: bytes) -> None:
        """Keep the parts of a complete item that must be sent back."""
        # xAI and others refuse null for an absent member (https://github.com/openai/codex/issues/42368, 2026-09).
        item: dict[str, Any] = {name: value for name, value in orjson.loads(raw).items() if value is not None}
        match kind:
            case "message":
                kept = {name: item[name] for name in _OF_MESSAGE if name in item}
                self._items[key] = kept | {CHARS: self._items.get(key, {}).get(CHARS, 0)}
                self._is_needed = self._is_needed or "phase" in kept
            case "function_call":
                self._items[key] = {name: item[name] for name in _OF_CALL if name in item} | {CALL: True}
            case "reasoning" if not (item.get("encrypted_content") or item.get("content")):
                self._items.pop(key, None)  # a reference to an item that is not stored
                self._lacks_thought = True
            case _:
                item.pop("status", None)
                self._items[key] = item
                self._is_needed = True

    def build_items(self) -> list[dict[str, Any]]:
        """Return the items; empty if there are only texts and calls."""
        if self._lacks_thought:
            for item in self._items.values():
                item.pop("id", None)
        return [*self._items.values()] if self._is_needed else []
