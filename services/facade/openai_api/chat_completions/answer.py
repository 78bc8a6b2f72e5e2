"""POST /v1/chat/completions, the answer: whole, or as chunks.

Reasoning stands in `reasoning_content`, DeepSeek's field, which clients know. Text and reasoning may have several
blocks, since the agent calls tools in between; a blank line parts them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import Any

import orjson

from headrace.v1 import common_pb2
from services.facade.openai_api import errors
from services.facade.openai_api.events import Called, Ended, Said, Started, Told
from services.facade.openai_api.output import Block, Output
from services.facade.openai_api.request import Asked

FINISH_REASONS = {"stop": "stop", "length": "length", "content_filter": "content_filter", "calls": "tool_calls"}
"""The others, budget and steps, are `length`: the answer was cut."""

FIELDS = {"text": "content", "reasoning": "reasoning_content"}

BETWEEN = "\n\n"


def finish_reason(end: Ended) -> str:
    return FINISH_REASONS.get(end.reason, "length")


def build_completion(asked: Asked, start: Started, output: Output, end: Ended) -> dict[str, Any]:
    """The whole answer."""
    message: dict[str, Any] = {"role": "assistant", "content": output.text("text") or None, "refusal": None}
    if reasoning := output.text("reasoning"):
        message["reasoning_content"] = reasoning
    if output.calls:
        message["tool_calls"] = [_call(call, start.run_id) for call in output.calls]
    elif message["content"] is None:
        message["content"] = ""
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason(end)}
    return _head(asked, start, "chat.completion") | {"choices": [choice], "usage": usage(end.usage)}


def usage(spent: common_pb2.Usage | None) -> dict[str, Any] | None:
    """The tokens of the whole run; None for an answer that does not end it, so that a sum is right."""
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
    """What a stream says that has failed before its first chunk."""
    return _error(errors.of_failure(failure))


async def stream_chunks(
    asked: Asked, things: AsyncIterator[Told], has_begun: Callable[[], bool]
) -> AsyncGenerator[bytes]:
    """The answer as frames. None comes before the first piece, so that what fails until then has a status of its own.

    Raises:
        HeadraceError: The run has failed and the answer has not begun.
    """
    stream = _Chunks(asked, has_begun)
    async for thing in things:
        for frame in stream.frames(thing):
            yield frame


class _Chunks:
    """One stream of chunks."""

    def __init__(self, asked: Asked, has_begun: Callable[[], bool]) -> None:
        self._asked = asked
        self._has_begun = has_begun
        self._output = Output()
        self._head: dict[str, Any] = {}
        self._run_id = ""
        self._spoke_last: dict[str, Block] = {}
        """By kind."""
        self._calls = 0
        self._role: dict[str, Any] = {"role": "assistant"}
        """For the first chunk."""

    def frames(self, thing: Told) -> Iterator[bytes]:
        """What one thing gives."""
        self._output.add(thing)
        match thing:
            case Started():
                self._head = _head(self._asked, thing, "chat.completion.chunk")
                self._run_id = thing.run_id
            case Said():
                block = self._output.blocks[thing.block_id]
                if piece := block.unsent(thing.text):
                    yield self._delta({FIELDS[block.kind]: self._parted(block, piece)})
            case Called():
                yield self._delta({"tool_calls": [{"index": self._calls} | _call(thing, self._run_id)]})
                self._calls += 1
            case Ended():
                yield from self._end(thing)
            case _:
                pass

    def _parted(self, block: Block, piece: str) -> str:
        before = self._spoke_last.get(block.kind)
        self._spoke_last[block.kind] = block
        return piece if before is None or before is block else BETWEEN + piece

    def _end(self, end: Ended) -> Iterator[bytes]:
        if end.failure is not None and not self._has_begun():
            errors.raise_known(end.failure)
        if failure := errors.of_end(end):
            yield _error(failure)
            return
        yield self._delta({}, finish_reason(end))
        if self._asked.include_usage:
            yield self._chunk([], usage(end.usage))
        yield b"data: [DONE]\n\n"

    def _delta(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        delta, self._role = self._role | delta, {}
        return self._chunk([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}])

    def _chunk(self, choices: list[dict[str, Any]], spent: dict[str, Any] | None = None) -> bytes:
        return b"data: %b\n\n" % orjson.dumps(self._head | {"choices": choices, "usage": spent})


def _error(form: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % orjson.dumps({"error": form})


def _head(asked: Asked, start: Started, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{start.run_id}",
        "object": kind,
        "created": start.at_s,
        "model": start.agent_key,
        "metadata": asked.metadata | {"run_id": start.run_id, "chat_id": start.chat_id},
    }


def _call(call: Called, run_id: str) -> dict[str, Any]:
    return {
        "id": call.id(run_id),
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }
