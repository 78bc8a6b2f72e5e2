"""Anthropic's messages: checks a request as strictly as the real service does, and plays steps as events or one body.

Adjacent texts of one kind share a content block; each tool call has its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from secrets import token_hex
from typing import Any

import orjson

from services.simulator.model_request import (
    ModelRequest,
    RequestRefused,
    SaidText,
    ToolResult,
    drop_reminders,
    read_reminder,
    read_texts,
)
from services.simulator.player import Action, RepeatedFrame
from services.simulator.protocols.signatures import sign_thinking
from services.simulator.script import (
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

THINKING = ("thinking", "redacted_thinking")

_ERROR_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}
"""Anthropic's names of the finish reasons that scripts share with other protocols; its own pass unchanged."""


def parse_request(body: Any, headers: Mapping[str, str], _names: Mapping[str, str]) -> ModelRequest:
    """Check the request.

    Raises:
        RequestRefused: It breaks a rule; important texts are Anthropic's (2026-05).
    """
    if "anthropic-version" not in headers:
        raise RequestRefused("anthropic-version: header is required")
    if not isinstance(body, dict):
        raise RequestRefused("The request body is not valid JSON")
    if not isinstance(model := body.get("model"), str) or not model:
        raise RequestRefused("model: Field required")
    if not isinstance(limit := body.get("max_tokens"), int) or limit < 1:
        raise RequestRefused("max_tokens: Field required")
    messages = _check_messages(body.get("messages"))
    _check_thinking(body, messages)
    own_texts = [read_texts(message["content"]) if message["role"] == "user" else [] for message in messages]
    last_user = max((index for index, texts in enumerate(own_texts) if texts), default=-1)
    answers = [message for message in messages[last_user + 1 :] if message["role"] == "assistant"]
    system: Any = body.get("system") or ""
    return ModelRequest(
        model=model,
        system=system if isinstance(system, str) else "".join(str(block.get("text", "")) for block in system),
        text="\n".join(own_texts[last_user]) if last_user >= 0 else "",
        reminder="\n".join(read_reminder(message["content"]) for message in messages),
        dialogue=tuple(
            SaidText(message["role"], text) for message in messages for text in read_texts(message["content"])
        ),
        turn=1 + len(answers),
        results=_find_newest_results(messages),
        tools=_read_tools(body),
        descriptions={tool["name"]: tool.get("description") or "" for tool in body.get("tools") or ()},
        may_call=(body.get("tool_choice") or {}).get("type") != "none",
        prompt_tokens=sum(len(_join_text(message)) for message in messages) // 4 + 1,
        stream=bool(body.get("stream")),
        include_usage=True,
    )


def _check_messages(messages: Any) -> list[dict[str, Any]]:
    if not isinstance(messages, list) or not messages:
        raise RequestRefused("messages: at least one message is required")
    open_calls: list[str] = []
    checked: list[dict[str, Any]] = []
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or message.get("role") not in ("user", "assistant"):
            raise RequestRefused(f"messages.{index}.role: Input should be 'user' or 'assistant'")
        blocks = _check_blocks(index, message.get("content"))
        _check_results(index, blocks, open_calls)
        open_calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
        checked.append({"role": message["role"], "content": blocks})
    _check_results(len(checked), [], open_calls)
    return checked


def _check_blocks(index: int, content: Any) -> list[dict[str, Any]]:
    blocks: Any = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(blocks, list) or not blocks:
        raise RequestRefused(f"messages.{index}: all messages must have non-empty content")
    for block in blocks:
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise RequestRefused(f"messages.{index}.content: Input should be a valid block")
        if block["type"] == "text" and not str(block.get("text", "")).strip():
            raise RequestRefused("messages: text content blocks must contain non-whitespace text")
        if block["type"] == "tool_use" and not isinstance(block.get("input"), dict):
            raise RequestRefused(f"messages.{index}.content: tool_use.input: Input should be a valid dictionary")
        if block["type"] == "thinking" and block.get("signature") != sign_thinking(block.get("thinking", "")):
            raise RequestRefused(f"messages.{index}.content: Invalid `signature` in `thinking` block")
    return blocks


def _check_results(index: int, blocks: list[dict[str, Any]], open_calls: list[str]) -> None:
    result_ids = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    if missing := [call_id for call_id in open_calls if call_id not in result_ids]:
        raise RequestRefused(
            f"messages.{index - 1}: `tool_use` ids were found without `tool_result` blocks immediately after: "
            f"{', '.join(missing)}. Each `tool_use` block must have a corresponding `tool_result` block in the next "
            "message."
        )
    if unknown := [call_id for call_id in result_ids if call_id not in open_calls]:
        raise RequestRefused(
            f"messages.{index}: unexpected `tool_use_id` found in `tool_result` blocks: {', '.join(unknown)}. Each "
            "`tool_result` block must have a corresponding `tool_use` block in the previous message."
        )


def _check_thinking(body: dict[str, Any], messages: list[dict[str, Any]]) -> None:
    thinking: Any = body.get("thinking") or {}
    if thinking.get("type") != "enabled":
        return
    if not 1024 <= thinking.get("budget_tokens", 0) < body["max_tokens"]:
        raise RequestRefused("`max_tokens` must be greater than `thinking.budget_tokens`, which must be at least 1024")
    if (body.get("tool_choice") or {}).get("type") in ("any", "tool"):
        raise RequestRefused("Thinking may not be enabled when tool_choice forces tool use.")
    if body.get("temperature", 1) != 1:
        raise RequestRefused("`temperature` may only be set to 1 when thinking is enabled.")
    if len(messages) > 1 and any(block["type"] == "tool_result" for block in messages[-1]["content"]):
        first = messages[-2]["content"][0]["type"]
        if first not in THINKING:
            raise RequestRefused(
                f"messages.{len(messages) - 2}.content.0.type: Expected `thinking` or `redacted_thinking`, but found "
                f"`{first}`."
            )


def _find_newest_results(messages: list[dict[str, Any]]) -> tuple[ToolResult, ...]:
    blocks = [block for block in messages[-1]["content"] if block["type"] == "tool_result"]
    if not blocks or read_texts(messages[-1]["content"]):
        return ()
    names = {block["id"]: block["name"] for block in messages[-2]["content"] if block["type"] == "tool_use"}
    contents: list[Any] = [block.get("content") or "" for block in blocks]
    texts = [content if isinstance(content, str) else _join_text({"content": content}) for content in contents]
    return tuple(
        ToolResult(names[block["tool_use_id"]], drop_reminders(text)) for block, text in zip(blocks, texts, strict=True)
    )


def _read_tools(body: dict[str, Any]) -> dict[str, frozenset[str]]:
    tools: dict[str, frozenset[str]] = {}
    offered: list[Any] = body.get("tools") or []
    for index, tool in enumerate(offered):
        if not isinstance(tool, dict) or not tool.get("name") or not isinstance(tool.get("input_schema"), dict):
            raise RequestRefused(f"tools.{index}: name and input_schema: Field required")
        tools[tool["name"]] = frozenset(tool["input_schema"].get("properties") or {})
    return tools


def _join_text(message: dict[str, Any]) -> str:
    return "".join(block["text"] for block in message["content"] if block["type"] == "text")


def build_error(message: str, status: int) -> dict[str, Any]:
    kind = _ERROR_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    error = {"type": kind, "message": message}
    return {"type": "error", "error": error, "request_id": f"req_{token_hex(12)}"}


def stream_reply(request: ModelRequest, reply: Reply, *, pace_ms: float) -> Iterator[Action]:
    """Yield the actions that stream `reply`, with `pace_ms` before each delta unless the reply has its own."""
    stream = _BlockStream(Wait(wait_ms=pace_ms if reply.pace_ms is None else reply.pace_ms))
    if reply.opening:
        message = _build_message(request, [], None, {"input_tokens": request.prompt_tokens, "output_tokens": 1})
        yield _encode_event("message_start", message=message)
    yield Wait(wait_ms=reply.first_delta_delay_ms)
    for step in reply.steps:
        yield from stream.play_step(step)
        if isinstance(step, End | Cut):
            return
    yield from stream.close_block()
    if not any(isinstance(step, Finish) for step in reply.steps):
        yield _encode_message_delta(_choose_stop_reason(reply), _build_usage(request, reply, stream.deltas))
    yield _encode_event("message_stop")


class _BlockStream:
    def __init__(self, pace: Wait) -> None:
        self._pace = pace
        self._index = -1
        self._kind = ""
        """Kind of the open block; empty when none is open."""
        self._thought: list[str] = []
        self.deltas = 0
        """Number of deltas sent."""

    def play_step(self, step: Step) -> Iterator[Action]:
        match step:
            case Content(content=texts):
                yield from self._open_block("text", text="")
                yield from self._send_deltas("text_delta", "text", texts)
            case Repeat(repeat=text, times=times):
                yield from self._open_block("text", text="")
                self.deltas += times
                yield RepeatedFrame(self._encode_delta("text_delta", "text", text), times, self._pace.wait_ms)
            case Reasoning(reasoning=texts):
                yield from self._open_block("thinking", thinking="", signature="")
                self._thought += texts
                yield from self._send_deltas("thinking_delta", "thinking", texts)
            case ToolCall():
                yield from self.close_block()
                yield from self._open_block("tool_use", id=step.id, name=step.tool_call, input={})
                # The real service begins with an empty piece.
                yield from self._send_deltas("input_json_delta", "partial_json", ("", *step.arguments))
            case Frame(frame=frame):
                yield _encode_event(**({"type": "message"} | frame))
            case Raw(raw=texts):
                yield from (text.encode("latin-1") for text in texts)
            case Finish(finish=reason):
                yield from self.close_block()
                yield _encode_message_delta(_STOP_REASONS.get(reason, reason), {"output_tokens": self.deltas})
            case UsageReport(usage=usage):
                yield _encode_message_delta(None, usage)
            case Wait() | Stall() | Cut() | End():
                yield step
            case _:
                raise AssertionError(f"{type(step).__name__} is answered before a stream begins")

    def _open_block(self, kind: str, **fields: Any) -> Iterator[Action]:
        if self._kind == kind:
            return
        yield from self.close_block()
        self._index += 1
        self._kind = kind
        yield _encode_event("content_block_start", index=self._index, content_block={"type": kind, **fields})

    def _send_deltas(self, kind: str, field: str, texts: Iterable[str]) -> Iterator[Action]:
        for text in texts:
            yield self._pace
            self.deltas += 1
            yield self._encode_delta(kind, field, text)

    def _encode_delta(self, kind: str, field: str, text: str) -> bytes:
        return _encode_event("content_block_delta", index=self._index, delta={"type": kind, field: text})

    def close_block(self) -> Iterator[Action]:
        """End the open block, with a signature if it is thinking."""
        if not self._kind:
            return
        if self._kind == "thinking":
            signature = sign_thinking("".join(self._thought))
            self._thought.clear()
            yield _encode_event(
                "content_block_delta", index=self._index, delta={"type": "signature_delta", "signature": signature}
            )
        self._kind = ""
        yield _encode_event("content_block_stop", index=self._index)


def _encode_event(type: str, **fields: Any) -> bytes:
    data = orjson.dumps({"type": type, **fields})
    return b"event: " + type.encode() + b"\ndata: " + data + b"\n\n"


def _encode_message_delta(stop_reason: str | None, usage: dict[str, Any]) -> bytes:
    return _encode_event("message_delta", delta={"stop_reason": stop_reason, "stop_sequence": None}, usage=usage)


def _build_message(
    request: ModelRequest, content: list[Any], stop_reason: str | None, usage: dict[str, Any]
) -> dict[str, Any]:
    start = {"id": f"msg_{token_hex(12)}", "type": "message", "role": "assistant", "model": request.model}
    return start | {"content": content, "stop_reason": stop_reason, "stop_sequence": None, "usage": usage}


def _choose_stop_reason(reply: Reply) -> str:
    given = next((step.finish for step in reply.steps if isinstance(step, Finish)), None)
    has_calls = any(isinstance(step, ToolCall) for step in reply.steps)
    return _STOP_REASONS.get(given or "", given or ("tool_use" if has_calls else "end_turn"))


def _build_usage(request: ModelRequest, reply: Reply, deltas: int) -> dict[str, Any]:
    given = next((step.usage for step in reversed(reply.steps) if isinstance(step, UsageReport)), None)
    return given or {"input_tokens": request.prompt_tokens, "output_tokens": deltas}


def build_whole_reply(request: ModelRequest, reply: Reply) -> Iterator[Action]:
    """Yield the actions for one JSON body, after its silences and cuts."""
    yield Wait(wait_ms=reply.first_delta_delay_ms)
    yield from (step for step in reply.steps if isinstance(step, Wait | Stall | Cut))
    content: list[dict[str, Any]] = []
    deltas = 0
    for step in reply.steps:
        match step:
            case Content(content=texts):
                content.append({"type": "text", "text": "".join(texts)})
            case Reasoning(reasoning=texts):
                thought = "".join(texts)
                content.append({"type": "thinking", "thinking": thought, "signature": sign_thinking(thought)})
            case ToolCall(arguments=texts):
                arguments = orjson.loads("".join(texts) or "{}")
                content.append({"type": "tool_use", "id": step.id, "name": step.tool_call, "input": arguments})
                deltas += 1  # the empty piece with which a stream of arguments begins
            case _:
                continue
        deltas += len(texts)
    usage = {"input_tokens": request.prompt_tokens} | _build_usage(request, reply, deltas)
    yield orjson.dumps(_build_message(request, content, _choose_stop_reason(reply), usage))
