"""The answer of POST /v1/chat/completions.

Reasoning is in `reasoning_content`, DeepSeek's field; a blank line separates blocks.

Chunks may carry ids, so that a disconnected client can resume after any of them. This extension is enabled by
two request headers, for streams whose metadata has a chat_id:

* `Headrace-Resumable: true` starts a run as usual, but the run continues when its client disconnects.
* `Last-Event-ID` with a chunk's id starts no run: the stream repeats the chat after that chunk, over all its runs, to
  the end of the newest one. `0.0` means the start of the chat.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from headrace.errors import InvalidRequest
from headrace.runs.fold import TERMINAL, Fold
from headrace.runs.parts import TextAdded
from headrace.v1 import agent_pb2, common_pb2
from services.facade.openai_api import errors
from services.facade.openai_api.event_mapper import map_delta
from services.facade.openai_api.events import FunctionCall, Output, RunEnded, RunEvent, RunStarted, get_kind
from services.facade.openai_api.request import AgentRequest

FINISH_REASONS = {"stop": "stop", "length": "length", "content_filter": "content_filter", "calls": "tool_calls"}
"""All other reasons, such as budget and steps, map to `length`."""

FIELDS = {"text": "content", "reasoning": "reasoning_content"}

BETWEEN = "\n\n"

DONE = b"data: [DONE]\n\n"


def map_finish_reason(end: RunEnded) -> str:
    return FINISH_REASONS.get(end.reason, "length")


def build_completion(request: AgentRequest, start: RunStarted, output: Output, end: RunEnded) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": output.join_text("text") or None, "refusal": None}
    if reasoning := output.join_text("reasoning"):
        message["reasoning_content"] = reasoning
    if output.calls:
        message["tool_calls"] = [_build_call(call, start.run_id) for call in output.calls]
    elif message["content"] is None:
        message["content"] = ""
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": map_finish_reason(end)}
    return _build_head(request, start, "chat.completion") | {"choices": [choice], "usage": build_usage(end.usage)}


def build_usage(spent: common_pb2.Usage | None) -> dict[str, Any] | None:
    """Return the token usage of the whole run."""
    if spent is None:
        return None
    return {
        "prompt_tokens": spent.input_tokens,
        "completion_tokens": spent.output_tokens,
        "total_tokens": spent.input_tokens + spent.output_tokens,
        "prompt_tokens_details": {"cached_tokens": spent.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": spent.reasoning_tokens},
    }


def build_error_chunk(failure: common_pb2.Failure) -> bytes:
    return _build_error(errors.build_failure_error(failure))


class ChunkStream:
    """The answer's frames, none before the first piece, so that an earlier failure gets its own HTTP status."""

    def __init__(self, request: AgentRequest, has_begun: Callable[[], bool]) -> None:
        self._request = request
        self._has_begun = has_begun
        self._output = Output()
        self._head: dict[str, Any] = {}
        self._run_id = ""
        self._last_ids: dict[str, str] = {}
        """Id of the last block by field."""
        self._calls = 0
        self._role: dict[str, Any] = {"role": "assistant"}
        self._around_text: dict[str, tuple[bytes, bytes]] = {}

    def map_event(self, event: RunEvent) -> Sequence[bytes]:
        """Return the frames of one event. Raises HeadraceError if the run failed before the answer started."""
        self._output.apply_event(event)
        match event:
            case RunStarted():
                self._head = _build_head(self._request, event, "chat.completion.chunk")
                self._run_id = event.run_id
            case TextAdded() if event.new:
                block_id, field = event.block.id, FIELDS[get_kind(event.block)]
                is_next = self._last_ids.setdefault(field, block_id) != block_id
                self._last_ids[field] = block_id
                return (self.build_text(field, BETWEEN + event.new if is_next else event.new),)
            case FunctionCall():
                self._calls += 1
                call = {"index": self._calls - 1} | _build_call(event, self._run_id)
                return (self._build_delta({"tool_calls": [call]}),)
            case RunEnded():
                return self.end_stream(event)
            case _:
                pass
        return ()

    def end_stream(self, end: RunEnded) -> Sequence[bytes]:
        if end.failure is not None and not self._has_begun():
            errors.raise_known_error(end.failure)
        if failure := errors.build_end_error(end):
            return (_build_error(failure),)
        last = self._build_delta({}, map_finish_reason(end))
        usage = (self._build_chunk([], build_usage(end.usage)),) if self._request.include_usage else ()
        return (last, *usage, DONE)

    def build_text(self, field: str, piece: str) -> bytes:
        if self._role:
            return self._build_delta({field: piece})
        if field not in self._around_text:
            # All chunks of a field except the first are identical around their text.
            before, after = self._build_delta({field: ""}).rsplit(b'""', 1)  # metadata may contain "" too
            self._around_text[field] = before, after
        before, after = self._around_text[field]
        return b"%b%b%b" % (before, orjson.dumps(piece), after)

    def _build_delta(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        delta, self._role = self._role | delta, {}
        return self._build_chunk([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}])

    def _build_chunk(self, choices: list[dict[str, Any]], spent: dict[str, Any] | None = None) -> bytes:
        return b"data: %b\n\n" % orjson.dumps(self._head | {"choices": choices, "usage": spent})


def _build_error(form: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % orjson.dumps({"error": form})


def _build_head(request: AgentRequest, start: RunStarted, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{start.run_id}",
        "object": kind,
        "created": start.at_s,
        "model": start.agent_key,
        "metadata": request.metadata | {"run_id": start.run_id, "chat_id": start.chat_id},
    }


def _build_call(call: FunctionCall, run_id: str) -> dict[str, Any]:
    return {
        "id": call.format_id(run_id),
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }


RESUMABLE, LAST_EVENT_ID = "Headrace-Resumable", "Last-Event-ID"

_FORM = re.compile(r"(\d{1,18})\.(\d{1,18})(?:;(\d{1,18});(\d{1,18}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Place:
    """A client's position in a chat: the last event received, and how many characters of the run it has.

    The character counts are needed because a replay splits the text differently.
    """

    n: str = "0"
    seq: int = 0
    told_chars: dict[str, int] = field(default_factory=dict[str, int])
    """Characters by the chunk's field."""

    @classmethod
    def parse(cls, text: str) -> Place:
        """Parse a chunk id; a bad one raises InvalidRequest."""
        if (match := _FORM.fullmatch(text)) is None:
            raise InvalidRequest.of(LAST_EVENT_ID, "must be the id of a chunk of this chat, or 0.0")
        return cls(match[1], int(match[2]), dict(zip(FIELDS.values(), map(int, match.groups("0")[2:]), strict=True)))


def check_followed(request: AgentRequest, *, is_asked: bool) -> None:
    """Raise InvalidRequest if the request lacks a chat or a stream, or uses an option that cannot be resumed."""
    for name, is_there in (("metadata.chat_id", bool(request.chat_id)), ("stream", request.stream)):
        if not is_there:
            raise InvalidRequest.of(name, f"is required with {RESUMABLE} and {LAST_EVENT_ID}")
    # Function calls and a structured answer, which is held back until it is complete, are only for the request
    # that started the run.
    wanted = (("tools", request.tools or request.results), ("response_format", request.output_format))
    for name, value in wanted if is_asked else ():
        if value:
            raise InvalidRequest.of(name, f"must be absent with {RESUMABLE}")


class _FollowedAnswer(ChunkStream):
    """One run's chunks with ids, without those that the client has."""

    def __init__(self, request: AgentRequest, known: Place) -> None:
        super().__init__(request, lambda: True)
        self._known = known
        self._fold = Fold()
        self._said = dict.fromkeys(FIELDS.values(), 0)
        self._seq = 0

    def map_delta(self, delta: agent_pb2.AgentDelta) -> Iterator[bytes]:
        self._seq = delta.seq
        for event in map_delta(self._fold, delta):
            yield from filter(None, self.map_event(event))

    def build_text(self, field: str, piece: str) -> bytes:
        missing = self._said[field] + len(piece) - self._known.told_chars.get(field, 0)
        self._said[field] += len(piece)
        return self._add_id(super().build_text(field, piece[-missing:])) if missing > 0 else b""

    def end_stream(self, end: RunEnded) -> Sequence[bytes]:
        if end.seq <= self._known.seq:
            return ()
        # Without DONE, because there may be another run.
        return [self._add_id(frame) for frame in super().end_stream(end) if frame != DONE]

    def _add_id(self, frame: bytes) -> bytes:
        chars = ";".join(str(max(self._said[name], self._known.told_chars.get(name, 0))) for name in self._said)
        return b"id: %b.%d;%b\n%b" % (self._known.n.encode(), self._seq, chars.encode(), frame)


class FollowedAnswers:
    """Consumes the events of a chat's runs after a place, up to the end of the run `last_run_id`.

    The run in which the place lies is replayed from its beginning.
    """

    def __init__(
        self,
        request: AgentRequest,
        place: Place | None,
        last_run_id: str,
        write_frame: Callable[[bytes], Awaitable[None]],
    ) -> None:
        """Without a place, only the run `last_run_id` is sent."""
        self._request = request
        self._place = place
        self._last_run_id = last_run_id
        self._write_frame = write_frame
        self._run_id = ""
        self._answer = _FollowedAnswer(request, Place())

    async def take(self, followed: agent_pb2.FollowDelta) -> bool:
        is_last = followed.run_id == self._last_run_id
        if not followed.run_id or (self._place is None and not is_last):
            return True
        if followed.run_id != self._run_id:
            n, _, _ = followed.cursor.partition(".")
            self._run_id = followed.run_id
            known = self._place if self._place is not None and self._place.n == n else Place(n)
            self._answer = _FollowedAnswer(self._request, known)
        for frame in self._answer.map_delta(followed.delta):
            await self._write_frame(frame)
        return not (is_last and followed.delta.WhichOneof("payload") in TERMINAL)
