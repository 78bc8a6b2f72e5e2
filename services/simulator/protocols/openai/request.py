"""Checks the request as strictly as the real service does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from services.simulator.requests.model_request import ModelRequest, RequestRefused, SaidText, ToolResult
from services.simulator.requests.user_texts import drop_reminders, read_reminder, read_texts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_ROLES = ("system", "developer", "user", "assistant", "tool")


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
        dialogue=tuple(_read_dialogue(messages)),
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


def _read_dialogue(messages: list[dict[str, Any]]) -> Iterator[SaidText]:
    for message in messages:
        if message["role"] in ("user", "assistant"):
            yield from (SaidText(message["role"], text) for text in read_texts(message.get("content")))


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
        messages = messages[:-1]  # pictures of results, which are none of the user's words
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
