"""Chat completions: checks a request as strictly as the real service does, and plays steps as frames or one JSON body.

A stream's prefix and suffix are encoded once, because a benchmark shares the machine.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
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

_ROLES = ("system", "developer", "user", "assistant", "tool")

_ERROR_CODES = {401: "invalid_api_key", 429: "rate_limit_exceeded"}
_DONE = b"data: [DONE]\n\n"
_TAIL = b'},"finish_reason":null}]}\n\n'


def parse_request(body: Any, _headers: Mapping[str, str], _names: Mapping[str, str]) -> ModelRequest:
    """Check the request.

    Raises:
        RequestRefused: It breaks a rule; important texts are OpenAI's (2026-05).
    """
    if not isinstance(body, dict):
        raise RequestRefused("The request body must be a JSON object.")
    if not isinstance(model := body.get("model"), str) or not model:
        raise RequestRefused("you must provide a model parameter")
    messages = _check_messages(body.get("messages"))
    own_texts = [read_texts(message.get("content")) if message["role"] == "user" else [] for message in messages]
    last_user = max((index for index, texts in enumerate(own_texts) if texts), default=-1)
    answers = [message for message in messages[last_user + 1 :] if message["role"] == "assistant"]
    options: Any = body.get("stream_options") or {}
    return ModelRequest(
        model=model,
        system="".join(_join_text(message) for message in messages if message["role"] in ("system", "developer")),
        text="\n".join(own_texts[last_user]) if last_user >= 0 else "",
        reminder="\n".join(read_reminder(message.get("content")) for message in messages),
        dialogue=tuple(
            SaidText(message["role"], text)
            for message in messages
            if message["role"] in ("user", "assistant")
            for text in read_texts(message.get("content"))
        ),
        turn=1 + len(answers),
        results=_find_newest_results(messages),
        tools=_read_tools(body),
        descriptions={
            tool["function"]["name"]: tool["function"].get("description") or "" for tool in _list_tools(body)
        },
        may_call=body.get("tool_choice") != "none",
        prompt_tokens=sum(len(_join_text(message)) for message in messages) // 4 + 1,
        stream=bool(body.get("stream")),
        include_usage=bool(options.get("include_usage")),
    )


def _check_messages(messages: Any) -> list[dict[str, Any]]:
    if not isinstance(messages, list) or not messages:
        raise RequestRefused("Invalid 'messages': expected a non-empty array.")
    pending: list[str] = []
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or message.get("role") not in _ROLES:
            raise RequestRefused(f"Invalid 'messages[{index}].role': expected one of {_ROLES}.")
        if message["role"] == "tool":
            if message.get("tool_call_id") not in pending:
                raise RequestRefused(
                    f"Invalid parameter: 'messages[{index}]' with role 'tool' must be a response to a preceding "
                    "message with 'tool_calls'."
                )
            pending.remove(message["tool_call_id"])
            continue
        _refuse_unanswered(pending)
        pending = [_check_call(index, call) for call in message.get("tool_calls") or ()]
    _refuse_unanswered(pending)
    return messages


def _check_call(index: int, call: Any) -> str:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not function.get("name") or not isinstance(function.get("arguments"), str):
        raise RequestRefused(
            f"Invalid 'messages[{index}].tool_calls': a call needs function.name and function.arguments."
        )
    return call.get("id", "")


def _refuse_unanswered(pending: list[str]) -> None:
    if pending:
        raise RequestRefused(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(pending)}"
        )


def _find_newest_results(messages: list[dict[str, Any]]) -> tuple[ToolResult, ...]:
    while len(messages) > 1 and messages[-1]["role"] == "user" and not read_texts(messages[-1].get("content")):
        messages = messages[:-1]  # pictures of results, which are not the user's words
    if messages[-1]["role"] != "tool":
        return ()
    assistant_index = max(index for index, message in enumerate(messages) if message["role"] == "assistant")
    names = {call["id"]: call["function"]["name"] for call in messages[assistant_index]["tool_calls"]}
    return tuple(
        ToolResult(names[message["tool_call_id"]], drop_reminders(_join_text(message)))
        for message in messages[assistant_index + 1 :]
        if message["role"] == "tool"
    )


def _read_tools(body: dict[str, Any]) -> dict[str, frozenset[str]]:
    tools: dict[str, frozenset[str]] = {}
    for index, tool in enumerate(_list_tools(body)):
        function: Any = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not function.get("name"):
            raise RequestRefused(f"Invalid 'tools[{index}].function.name'.")
        properties = (function.get("parameters") or {}).get("properties") or {}
        tools[function["name"]] = frozenset(properties)
    return tools


def _list_tools(body: dict[str, Any]) -> list[Any]:
    return body.get("tools") or []


def _join_text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content if isinstance(part, dict))


def build_error(message: str, status: int) -> dict[str, Any]:
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": _ERROR_CODES.get(status)}}


def stream_reply(request: ModelRequest, reply: Reply, *, pace_ms: float) -> Iterator[Action]:
    """Yield the actions that stream `reply`, with `pace_ms` before each delta unless the reply has its own."""
    start = {"id": f"chatcmpl-{token_hex(8)}", "object": "chat.completion.chunk", "created": int(time.time())}
    opening = orjson.dumps(start | {"model": request.model})[:-1]
    head = b"data: " + opening + b',"choices":[{"index":0,"delta":'
    pace = Wait(wait_ms=pace_ms if reply.pace_ms is None else reply.pace_ms)
    if reply.opening:
        yield head + b'{"role":"assistant","content":""' + _TAIL
    yield Wait(wait_ms=reply.first_delta_delay_ms)
    deltas = 0
    for step in reply.steps:
        if isinstance(step, Repeat):
            yield RepeatedFrame(_encode_content(head, step.repeat), step.times, pace.wait_ms)
            deltas += step.times
            continue
        for action in _play_step(step, head):
            if isinstance(action, bytes) and isinstance(step, Content | Reasoning | ToolCall):
                yield pace
                deltas += 1
            yield action
        if isinstance(step, End | Cut):
            return
    yield from _end_stream(request, reply, head, deltas)


def _play_step(step: Step, head: bytes) -> Iterator[Action]:
    match step:
        case Content(content=texts):
            yield from (_encode_content(head, text) for text in texts)
        case Reasoning(reasoning=texts):
            yield from (head + b'{"reasoning_content":' + orjson.dumps(text) + _TAIL for text in texts)
        case ToolCall():
            function = {"name": step.tool_call, "arguments": ""}
            parts: list[dict[str, Any]] = [
                {"index": step.index, "id": step.id, "type": "function", "function": function}
            ]
            parts += ({"index": step.index, "function": {"arguments": text}} for text in step.arguments)
            yield from (head + orjson.dumps({"tool_calls": [part]})[:-1] + _TAIL for part in parts)
        case Frame(frame=frame):
            yield b"data: " + orjson.dumps(frame) + b"\n\n"
        case Raw(raw=texts):
            yield from (text.encode("latin-1") for text in texts)
        case Finish(finish=reason):
            yield head + b'{},"finish_reason":' + orjson.dumps(reason) + b"}]}\n\n"
        case UsageReport(usage=usage):
            yield _encode_usage(head, usage)
        case Wait() | Stall() | Cut() | End():
            yield step
        case _:
            raise AssertionError(f"{type(step).__name__} is answered before a stream begins")


def _encode_content(head: bytes, text: str) -> bytes:
    return head + b'{"content":' + orjson.dumps(text) + _TAIL


def _encode_usage(head: bytes, usage: dict[str, Any]) -> bytes:
    return head[: head.rindex(b"[")] + b'[],"usage":' + orjson.dumps(usage) + b"}\n\n"


def _end_stream(request: ModelRequest, reply: Reply, head: bytes, deltas: int) -> Iterator[Action]:
    """Yield the parts of the end that the steps do not contain."""
    if not any(isinstance(step, Finish) for step in reply.steps):
        yield from _play_step(Finish(finish=_choose_finish_reason(reply)), head)
    if request.include_usage and not any(isinstance(step, UsageReport) for step in reply.steps):
        yield _encode_usage(head, _build_usage(request, deltas))
    yield _DONE


def _choose_finish_reason(reply: Reply) -> str:
    given = next((step.finish for step in reply.steps if isinstance(step, Finish)), None)
    has_calls = any(isinstance(step, ToolCall) for step in reply.steps)
    return given or ("tool_calls" if has_calls else "stop")


def _build_usage(request: ModelRequest, deltas: int) -> dict[str, Any]:
    cached = {"prompt_tokens_details": {"cached_tokens": request.cached_tokens}} if request.cached_tokens else {}
    return cached | {
        "prompt_tokens": request.prompt_tokens,
        "completion_tokens": deltas,
        "total_tokens": request.prompt_tokens + deltas,
    }


def build_whole_reply(request: ModelRequest, reply: Reply) -> Iterator[Action]:
    """Yield the actions for one JSON body, after its silences and cuts."""
    yield Wait(wait_ms=reply.first_delta_delay_ms)
    yield from (step for step in reply.steps if isinstance(step, Wait | Stall | Cut))
    texts = [text for step in reply.steps if isinstance(step, Content) for text in step.content]
    thoughts = [text for step in reply.steps if isinstance(step, Reasoning) for text in step.reasoning]
    calls = [step for step in reply.steps if isinstance(step, ToolCall)]
    message: dict[str, Any] = {"role": "assistant", "content": "".join(texts) if texts or not calls else None}
    if thoughts:
        message["reasoning_content"] = "".join(thoughts)
    for call in calls:
        function = {"name": call.tool_call, "arguments": "".join(call.arguments)}
        message.setdefault("tool_calls", []).append({"id": call.id, "type": "function", "function": function})
    choice = {"index": 0, "message": message, "finish_reason": _choose_finish_reason(reply)}
    body = {"id": f"chatcmpl-{token_hex(8)}", "object": "chat.completion", "created": int(time.time())}
    usage = next((step.usage for step in reply.steps if isinstance(step, UsageReport)), None)
    # The same number as in a stream: a call has one frame for its name before those of its arguments.
    deltas = len(texts) + len(thoughts) + sum(1 + len(call.arguments) for call in calls)
    yield orjson.dumps(
        body | {"model": request.model, "choices": [choice], "usage": usage or _build_usage(request, deltas)}
    )
