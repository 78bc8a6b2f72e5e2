"""One answer as it is read: what every protocol's reader has in common, and what the gateway asks of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, TypeVar

from headrace.errors import BadFrame, ContextLengthExceeded, HeadraceError, ProviderUnavailable
from headrace.sse import SseReader
from headrace.v1.llm_pb2 import LlmDelta, LlmFinish
from services.llm_gateway.protocols.common.delta_encoding import call_delta, content_delta, reasoning_delta
from services.llm_gateway.protocols.common.surrogates import Halves, marked
from services.llm_gateway.provider_errors.error_object import UNREADABLE, ErrorObject
from services.llm_gateway.provider_errors.refusal import refusal_in_stream, to_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.v1 import common_pb2

Decoded = TypeVar("Decoded")

Give: TypeAlias = "Callable[[bytes], object]"
"""Where the deltas of an answer go, serialized, each at once."""


class Answer:
    """Reads one answer. Belongs to one attempt; knows at any moment what to say if the stream broke off now."""

    __slots__ = ("_give", "_halves", "_model", "_provider", "_reader", "_secret", "_was_done", "deltas", "is_over")

    def __init__(self, provider: str, model: str, secret: str, give: Give) -> None:
        self._provider = provider
        self._model = model
        self._secret = secret
        self._give = give
        self._reader = SseReader()
        self._was_done = False
        self._halves: Halves | None = None
        """Made by the first frame that needs it."""
        self.deltas = 0
        """Reasoning, content and tool-call deltas so far."""
        self.is_over = False
        """Whether there is nothing more to feed: the end mark was read, or the stream has ended."""

    def feed(self, chunk: bytes) -> None:
        """Give the deltas of the frames that `chunk` completes; an empty chunk is the stream's end.

        Raises:
            BadFrame: A frame is too large, no JSON, or has a known field of the wrong type.
            HeadraceError: A frame carries an error.
        """
        if chunk:
            self._reader.push(chunk, self._read)
            return
        self.is_over = True
        self._reader.push_rest(self._read)
        self._ended()

    def finish(self) -> LlmFinish:
        """How the answer ended; asked once, when it is over.

        Raises:
            ProviderUnavailable: The stream ended before the answer did.
            ContextLengthExceeded: There was no room for even one token.
        """
        reason = self._reason()
        if reason is None:
            raise ProviderUnavailable(
                f"provider {self._provider!r} ended the stream before the answer was complete",
                provider=self._provider,
                model=self._model,
            )
        if reason == "length" and not self.deltas:
            raise ContextLengthExceeded(
                f"model {self._model!r} had no room left for an answer", provider=self._provider, model=self._model
            )
        return LlmFinish(reason=reason)

    def usage(self) -> common_pb2.Usage:
        """What is known of the cost so far; without any report, an estimate: a delta is about a token."""
        raise NotImplementedError

    def _read(self, data: bytes, event: str | None, frame_id: str | None) -> None:
        """Give the deltas of one frame."""
        raise NotImplementedError

    def _ended(self) -> None:
        """Give what was still held when the answer ended; asked more than once, given once."""
        raise NotImplementedError

    def _think(self, text: str) -> None:
        self.deltas += 1
        self._give(reasoning_delta(text))

    def _say(self, text: str) -> None:
        self.deltas += 1
        self._give(content_delta(text))

    def _call(self, index: int, arguments: str, call_id: str = "", name: str = "") -> None:
        self.deltas += 1
        self._give(call_delta(index, arguments, call_id, name))

    def _keep(self, state: str) -> None:
        """No delta of the model's own."""
        self._give(LlmDelta(provider_state=state).SerializeToString())

    def _reason(self) -> str | None:
        """The contract's word for how the answer ended; None: it did not."""
        raise NotImplementedError

    def _decoded_again(self, decode: Callable[[bytes], Decoded], data: bytes, error: Exception) -> Decoded:
        """The frame that could not be decoded for the half characters in it; any other is a bad one."""
        try:
            frame = decode(marked(data))
        except UNREADABLE:
            raise self._bad_frame(data) from error
        self._halves = self._halves or Halves()
        return frame

    def _failure(self, error: ErrorObject | str) -> HeadraceError:
        return to_error(refusal_in_stream(self._provider, self._model, error), self._secret)

    def _bad_frame(self, data: bytes) -> BadFrame:
        return BadFrame(
            f"provider {self._provider!r} sent a frame of {len(data)} bytes that is not in its protocol's form",
            provider=self._provider,
            model=self._model,
            frameSizeBytes=len(data),
        )
