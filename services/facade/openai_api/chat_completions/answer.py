"""The answer of POST /v1/chat/completions.

Reasoning is in `reasoning_content`, DeepSeek's field; a blank line separates blocks.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import Any

import orjson

from headrace.v1 import common_pb2
from services.facade.openai_api import errors
from services.facade.openai_api.events import FunctionCall, RunEnded, RunEvent, RunStarted, TextDelta
from services.facade.openai_api.output import Block, Output
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
    """Return the whole run's tokens."""
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


async def stream_chunks(
    request: AgentRequest, events: AsyncIterator[RunEvent], has_begun: Callable[[], bool]
) -> AsyncGenerator[bytes]:
    """Yield the answer's frames, none before the first piece, so that an earlier failure has its own status.

    Raises:
        HeadraceError: The run failed before the answer began.
    """
    stream = ChunkStream(request, has_begun)
    async for event in events:
        for frame in stream.map_event(event):
            yield frame


class ChunkStream:
    def __init__(self, request: AgentRequest, has_begun: Callable[[], bool]) -> None:
        self._request = request
        self._has_begun = has_begun
        self._output = Output()
        self._head: dict[str, Any] = {}
        self._run_id = ""
        self._last_blocks: dict[str, Block] = {}
        self._calls = 0
        self._role: dict[str, Any] = {"role": "assistant"}
        self._around_text: dict[str, tuple[bytes, bytes]] = {}

    def map_event(self, event: RunEvent) -> Iterator[bytes]:
        self._output.apply_event(event)
        match event:
            case RunStarted():
                self._head = _build_head(self._request, event, "chat.completion.chunk")
                self._run_id = event.run_id
            case TextDelta():
                block = self._output.blocks[event.block_id]
                if piece := block.take_unsent(event.text):
                    last = self._last_blocks.get(block.kind, block)
                    self._last_blocks[block.kind] = block
                    if last is not block:
                        piece = BETWEEN + piece
                    yield self.build_text(FIELDS[block.kind], piece)
            case FunctionCall():
                yield self._build_delta({"tool_calls": [{"index": self._calls} | _build_call(event, self._run_id)]})
                self._calls += 1
            case RunEnded():
                yield from self.end_stream(event)
            case _:
                pass

    def end_stream(self, end: RunEnded) -> Iterator[bytes]:
        if end.failure is not None and not self._has_begun():
            errors.raise_known_error(end.failure)
        if failure := errors.build_end_error(end):
            yield _build_error(failure)
            return
        yield self._build_delta({}, map_finish_reason(end))
        if self._request.include_usage:
            yield self._build_chunk([], build_usage(end.usage))
        yield DONE

    def build_text(self, field: str, piece: str) -> bytes:
        if self._role:
            return self._build_delta({field: piece})
        if field not in self._around_text:
            # All chunks of a field but the first are the same around their text.
            before, after = self._build_delta({field: ""}).rsplit(b'""', 1)  # metadata may have some, too
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
