"""The common part of all answer readers."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

import msgspec
import structlog

from headrace.errors import BadFrame, ContextLengthExceeded, HeadraceError, ProviderUnavailable
from headrace.sse import FRAME_SIZE_BYTES_MAX, SseReader, Take
from headrace.v1 import common_pb2
from headrace.v1.llm_pb2 import LlmDelta, LlmFinish, LlmMedia
from services.llm_gateway.fitting.provider_state import pack_state
from services.llm_gateway.protocols.common.delta_encoding import (
    CONTENT,
    ONE_BYTE,
    encode_call,
    encode_content,
    encode_reasoning,
)
from services.llm_gateway.protocols.common.lenient_decoding import HalfJoiner, decode_leniently, mark_lone_halves
from services.llm_gateway.protocols.common.reports import FAILURES, is_known_finish
from services.llm_gateway.provider_errors.refusal import (
    UNREADABLE,
    ErrorObject,
    find_address,
    make_error,
    read_refusal,
    read_stream_error,
)
from services.llm_gateway.providers.provider_file import Provider
from services.llm_gateway.telemetry.interaction_log import AnswerHead, decode_head
from services.runtime.telemetry.masking import mask_secrets

log = structlog.get_logger()

Decoded = TypeVar("Decoded")

PASSED_OVER_BYTES_MAX = 64 * 1024
"""Bytes kept of an indecisive frame, for the error of a stream without a decisive one."""

SendBytes: TypeAlias = "Callable[[bytes], object]"

_BETWEEN_FRAMES = re.compile(rb"(?<=\})\n(?=\{|\[DONE\])")
"""Matches a line end that no JSON has: some servers leave out the blank line between frames, or `data:`
(https://github.com/rexxars/eventsource-parser/pull/31, 2026-05)."""

_OBJECTS = re.compile(rb"\[\s*\{")
"""Matches the beginning of a list of frames, Gemini's form without `alt=sse`."""

Channel: TypeAlias = Literal["content", "reasoning"]


class FrameReader(Protocol):
    """Cuts a body into frames."""

    def push(self, chunk: bytes, take: Take) -> None:
        """Pass each frame that `chunk` completes to `take`; BadFrame if one is too large or malformed."""
        ...

    def push_rest(self, take: Take) -> None:
        """Pass on the rest at the end of the body."""
        ...


@dataclass(frozen=True, slots=True)
class AnswerSource:
    """The provider and model of an answer, and facts about the request."""

    provider: Provider
    model: str

    url: str = field(repr=False)
    """Address with its query, which may contain a secret."""

    call_ids: Collection[str] = ()
    """Ids of calls in the conversation."""

    tool_names: Mapping[str, str] = field(default_factory=dict[str, str])
    """The tools' own names, by the replaced names in the request."""

    secrets: Sequence[str] = field(default=(), repr=False)
    """Texts to mask in errors."""


HEAD_FRAMES_MAX = 8
"""Frames in which the head of an answer is looked for."""


class AnswerReader:
    __slots__ = (
        "_frames_passed_over",
        "_halves",
        "_model",
        "_passed_over",
        "_provider",
        "_reader",
        "_saw_end_mark",
        "_send",
        "_source",
        "_take_frame",
        "_tool_names",
        "deltas",
        "has_finish",
        "head",
        "is_over",
    )

    def __init__(
        self,
        source: AnswerSource,
        give: SendBytes,
        frame_bytes_max: int = FRAME_SIZE_BYTES_MAX,
        frames: FrameReader | None = None,
    ) -> None:
        """Read the frames that `frames` cuts, by default Server-Sent Events."""
        self._provider = source.provider.key
        self._model = source.model
        self._source = source
        self._tool_names = source.tool_names
        self._send = give
        self._reader: FrameReader = frames or SseReader(size_bytes_max=frame_bytes_max, take_other=self._read_other)
        self._take_frame: Take | None = None
        """Receives frames instead of `_read_frame`."""
        self._saw_end_mark = False
        self._halves: HalfJoiner | None = None
        self._passed_over = b""
        """The first indecisive frame."""
        self.deltas = 0
        self.head: AnswerHead | None = None
        """None unless `look_for_head` was called and a frame had it."""
        self._frames_passed_over = 0
        self.has_finish = False
        """Whether a frame had the finish reason; usage may follow."""
        self.is_over = False

    def feed_chunk(self, chunk: bytes) -> None:
        """Send the deltas of complete frames; an empty chunk ends the stream.

        Raises:
            BadFrame: A frame is too large or malformed.
            HeadraceError: A frame contains an error.
        """
        if chunk:
            self._reader.push(chunk, self._take_frame or self._read_frame)
            return
        self.is_over = True
        self._reader.push_rest(self._take_frame or self._read_frame)
        self._flush_held()

    def look_for_head(self) -> None:
        """Set `head` from the first frame that has it."""
        frames = 0

        def look_and_read(data: bytes, event: str | None, frame_id: str | None) -> None:
            nonlocal frames
            if frames < HEAD_FRAMES_MAX:
                frames += 1
                with suppress(msgspec.DecodeError):
                    head = decode_head(data)
                    if head.answer_id or head.answer_model:
                        self.head = head
                        frames = HEAD_FRAMES_MAX
            else:
                self._take_frame = None
            self._read_frame(data, event, frame_id)

        self._take_frame = look_and_read

    def build_finish(self) -> LlmFinish:
        """Return how the answer ended; called once, at its end.

        Raises:
            ProviderUnavailable: The stream ended too early, without a token, or with a reason that means a failure.
            ContextLengthExceeded: The window had no room for a token.
        """
        reason = self._map_finish_reason()
        if count := self._frames_passed_over:
            log.warning("frames passed over", provider=self._provider, model=self._model, count=count)
        if reason is None and self._passed_over:
            raise self._make_refusal(self._passed_over)
        if reason is None:
            raise ProviderUnavailable(
                f"{self._describe_provider()} ended the stream before the answer was complete",
                provider=self._provider,
                model=self._model,
            )
        if reason in FAILURES:
            raise ProviderUnavailable(
                f"provider {self._provider!r} broke the answer off with {reason!r}",
                provider=self._provider,
                model=self._model,
                providerReason=reason,
            )
        # An answer that contains only hidden output, such as secret reasoning, had room.
        if reason == "length" and not (self.deltas or self.build_usage().output_tokens):
            raise ContextLengthExceeded(
                f"model {self._model!r} had no room left for an answer", provider=self._provider, model=self._model
            )
        # Relays end so if their own provider has failed; a model's own empty answer has at least its end's token.
        if reason in ("stop", "tool_calls") and not (self.deltas or self.build_usage().output_tokens):
            raise ProviderUnavailable(
                f"provider {self._provider!r} ended the answer without a token",
                provider=self._provider,
                model=self._model,
            )
        if not is_known_finish(reason):
            log.warning("unknown finish reason", provider=self._provider, model=self._model, finish_reason=reason)
        return LlmFinish(reason=reason)

    def build_usage(self) -> common_pb2.Usage:
        """Return the usage so far; without a report, estimated at a token per delta."""
        raise NotImplementedError

    def _read_frame(self, data: bytes, event: str | None, frame_id: str | None) -> None:
        raise NotImplementedError

    def _read_other(self, block: bytes) -> None:
        """Read lines that are not a frame: a document instead of a stream, or an error with its own field name."""
        text = block.strip()
        name, _, value = text.partition(b":")
        if name == b"error":
            raise self._make_refusal(b'{"error":%b}' % value.strip())
        if text.startswith(b"{"):
            with suppress(BadFrame):
                self._read_frame(text, None, None)
        elif _OBJECTS.match(text):
            with suppress(BadFrame, *UNREADABLE):
                for frame in msgspec.json.decode(text, type=list[msgspec.Raw]):
                    self._read_frame(bytes(frame), None, None)
        if not (self.deltas or self.has_finish or self._passed_over):
            self._pass_over(text)

    def _pass_over(self, data: bytes) -> None:
        self._frames_passed_over += 1
        self._passed_over = self._passed_over or data[:PASSED_OVER_BYTES_MAX]

    def _flush_held(self) -> None:
        """Send the text held at the end; may be called again."""
        raise NotImplementedError

    def _send_reasoning(self, text: str) -> None:
        self.deltas += 1
        self._send(encode_reasoning(text))

    def _send_content(self, text: str) -> None:
        self.deltas += 1
        data = text.encode()
        self._send(CONTENT[len(data)] + data if len(data) < ONE_BYTE else encode_content(text))

    def _send_call(self, index: int, arguments: str, call_id: str = "", name: str = "") -> None:
        self.deltas += 1
        self._send(encode_call(index, arguments, call_id, self._tool_names.get(name, name)))

    def _add_text(self, channel: Channel, text: str) -> str:
        """Send a text without incomplete characters at its end; return the sent part."""
        if self._halves is not None:
            text = self._halves.join_text(channel, text)
        if text:
            self.deltas += 1
            self._send(encode_content(text) if channel == "content" else encode_reasoning(text))
        return text

    def _add_arguments(self, index: int, text: str) -> None:
        """Send a piece of a call's arguments in the same way."""
        if self._halves is not None:
            text = self._halves.join_text(index, text)
        if text:
            self._send_call(index, text)

    def _flush_halves(self) -> None:
        if self._halves is not None:
            for channel, text in self._halves.take_rest():
                if not isinstance(channel, int):
                    self._add_text("content" if channel == "content" else "reasoning", text)

    def _send_media(self, media: LlmMedia) -> None:
        self.deltas += 1
        self._send(LlmDelta(media=media).SerializeToString())

    def _send_state(self, items_by_kind: Mapping[str, list[dict[str, Any]]]) -> None:
        state = pack_state(self._provider, self._model, items_by_kind)
        self._send(LlmDelta(provider_state=state).SerializeToString())

    def _map_finish_reason(self) -> str | None:
        """Return the finish reason translated by `translate_finish`; None for an unfinished answer."""
        raise NotImplementedError

    def _decode_again(
        self, kind: type[Decoded], data: bytes, error: Exception, *, is_document: bool = False
    ) -> Decoded | None:
        """Decode a frame that deviates from its protocol; None for a frame that is ignored, or read in its parts."""
        if len(frames := _BETWEEN_FRAMES.split(data)) > 1:
            for part in frames:
                self._read_frame(part, None, None)
            return None
        marked = mark_lone_halves(data)
        try:
            frame = decode_leniently(marked, kind)
        except UNREADABLE:
            if data.startswith(b"{") and not is_document:  # it may have contained a decisive part
                raise self._make_undecoded_error(data) from error
            self._pass_over(data)
            return None
        if marked != data:
            self._halves = self._halves or HalfJoiner()
        return frame

    def _make_provider_error(self, error: ErrorObject | str) -> HeadraceError:
        return make_error(read_stream_error(self._provider, self._model, error), *self._source.secrets)

    def _describe_provider(self) -> str:
        """Return the provider's key, with its address if nothing of an answer has come from there."""
        if self.deltas:
            return f"provider {self._provider!r}"
        address = mask_secrets(find_address(self._source.url), *self._source.secrets)
        return f"provider {self._provider!r} at {address} (check its baseUrl)"

    def _make_refusal(self, body: bytes) -> HeadraceError:
        return make_error(
            read_refusal(self._provider, self._model, 200, {}, body, self._source.url), *self._source.secrets
        )

    def _make_undecoded_error(self, data: bytes) -> HeadraceError:
        """Return the error that a frame contains in a form of its own, or else BadFrame."""
        with suppress(*UNREADABLE):
            if msgspec.json.decode(data).get("error"):
                return self._make_refusal(data)
        return BadFrame(
            f"{self._describe_provider()} sent a frame of {len(data)} bytes that is not in its protocol's form",
            provider=self._provider,
            model=self._model,
            frameSizeBytes=len(data),
        )
