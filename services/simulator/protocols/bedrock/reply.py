"""Steps as events of a stream, or as one JSON body."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from services.simulator.playback.repeated_frames import RepeatedFrame
from services.simulator.protocols.bedrock.event_stream import encode_event, encode_message
from services.simulator.protocols.common.signatures import sign_thinking
from services.simulator.scripts.steps import (
    Content,
    Cut,
    End,
    Finish,
    Frame,
    Raw,
    Reasoning,
    Repeat,
    Reply,
    Stall,
    Step,
    ToolCall,
    UsageReport,
    Wait,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from services.simulator.playback.player import Action
    from services.simulator.requests.model_request import ModelRequest

_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "content_filtered",
}
"""Converse's names of the reasons that scripts share with other protocols; its own pass unchanged."""

Piece = dict[str, Any]


def build_error(message: str, _status: int) -> dict[str, Any]:
    return {"message": message}


def stream_reply(request: ModelRequest, reply: Reply, *, pace_ms: float) -> Iterator[Action]:
    """Yield the actions that stream `reply`, with `pace_ms` before each delta unless the reply has its own."""
    pace = Wait(wait_ms=pace_ms if reply.pace_ms is None else reply.pace_ms)
    if reply.opening:
        yield encode_event("messageStart", role="assistant")
    yield Wait(wait_ms=reply.first_delta_delay_ms)
    stream = _BlockStream(pace)
    for step in reply.steps:
        yield from stream.play_step(step)
        if isinstance(step, End | Cut):
            return
    yield from stream.close_block()
    yield encode_event("messageStop", stopReason=_choose_reason(reply))
    yield encode_event("metadata", usage=_build_usage(request, reply, stream.deltas), metrics={"latencyMs": 1})


class _BlockStream:
    def __init__(self, pace: Wait) -> None:
        self._pace = pace
        self._index = -1
        self._kind = ""
        self._thought = ""
        self.deltas = 0

    def play_step(self, step: Step) -> Iterator[Action]:
        match step:
            case Repeat(repeat=text, times=times):
                yield from self._open_block("text")
                self.deltas += times
                yield RepeatedFrame(self._encode({"text": text}), times, self._pace.wait_ms)
            case Content(content=texts):
                yield from self._open_block("text")
                yield from self._send([{"text": text} for text in texts])
            case Reasoning(reasoning=texts):
                yield from self._open_block("reasoning")
                self._thought += "".join(texts)
                yield from self._send([{"reasoningContent": {"text": text}} for text in texts])
            case ToolCall():
                yield from self.close_block()
                yield from self._open_block("toolUse")
                self.deltas += 1
                start = {"toolUse": {"toolUseId": step.id, "name": step.tool_call}}
                yield encode_event("contentBlockStart", contentBlockIndex=self._index, start=start)
                yield from self._send([{"toolUse": {"input": text}} for text in step.arguments])
            case Frame(frame=frame):
                name = str(frame.get("exception", "internalServerException"))
                yield encode_message({":exception-type": name, ":message-type": "exception"}, frame)
            case Raw(raw=texts):
                yield from (text.encode("latin-1") for text in texts)
            case Finish() | UsageReport():
                pass  # said by the last events
            case Wait() | Stall() | Cut() | End():
                yield step
            case _:
                raise AssertionError(f"{type(step).__name__} is answered before a stream begins")

    def _open_block(self, kind: str) -> Iterator[Action]:
        if self._kind != kind:
            yield from self.close_block()
            self._index += 1
            self._kind = kind

    def _encode(self, delta: Piece) -> bytes:
        return encode_event("contentBlockDelta", contentBlockIndex=self._index, delta=delta)

    def _send(self, pieces: list[Piece]) -> Iterator[Action]:
        for piece in pieces:
            yield self._pace
            self.deltas += 1
            yield self._encode(piece)

    def close_block(self) -> Iterator[Action]:
        """End the open block, with a signature if it is a thought."""
        if self._kind == "reasoning":
            yield self._encode({"reasoningContent": {"signature": sign_thinking(self._thought)}})
            self._thought = ""
        if self._kind:
            yield encode_event("contentBlockStop", contentBlockIndex=self._index)
        self._kind = ""


def _choose_reason(reply: Reply) -> str:
    given = next((step.finish for step in reply.steps if isinstance(step, Finish)), None)
    has_calls = any(isinstance(step, ToolCall) for step in reply.steps)
    word = given or ("tool_calls" if has_calls else "stop")
    return _REASONS.get(word, word)


def _build_usage(request: ModelRequest, reply: Reply, deltas: int) -> dict[str, Any]:
    given = next((step.usage for step in reversed(reply.steps) if isinstance(step, UsageReport)), None)
    read = request.prompt_tokens
    return given or {"inputTokens": read, "outputTokens": deltas, "totalTokens": read + deltas}


def build_whole_reply(request: ModelRequest, reply: Reply) -> Iterator[Action]:
    """Yield the actions for one JSON body, after its silences and cuts."""
    yield Wait(wait_ms=reply.first_delta_delay_ms)
    yield from (step for step in reply.steps if isinstance(step, Wait | Stall | Cut))
    blocks: list[Piece] = []
    deltas = 0
    for step in reply.steps:
        match step:
            case Content(content=texts):
                blocks.append({"text": "".join(texts)})
            case Reasoning(reasoning=texts):
                thought = "".join(texts)
                text = {"text": thought, "signature": sign_thinking(thought)}
                blocks.append({"reasoningContent": {"reasoningText": text}})
            case ToolCall(arguments=texts):
                arguments = orjson.loads("".join(texts) or "{}")
                blocks.append({"toolUse": {"toolUseId": step.id, "name": step.tool_call, "input": arguments}})
                deltas += 1
            case _:
                continue
        deltas += len(texts)
    message = {"role": "assistant", "content": blocks}
    ends = {"stopReason": _choose_reason(reply), "usage": _build_usage(request, reply, deltas)}
    yield orjson.dumps({"output": {"message": message}, "metrics": {"latencyMs": 1}} | ends)
