"""Checks the request as strictly as the real service does, and reads it as one of chat completions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from services.simulator.protocols.common.signatures import sign_thinking
from services.simulator.protocols.openai import request as chat
from services.simulator.requests.model_request import ModelRequest, RequestRefused

if TYPE_CHECKING:
    from collections.abc import Mapping

OUTPUT_TOKENS_MIN = 16

_TEXTS = ("input_text", "output_text", "text", "refusal")


def parse_request(body: Any, headers: Mapping[str, str], names: Mapping[str, str]) -> ModelRequest:
    """Check the request.

    Raises:
        RequestRefused: It breaks a rule; important texts are OpenAI's (2026-11).
    """
    if not isinstance(body, dict):
        raise RequestRefused("The request body must be a JSON object.")
    if body.get("max_output_tokens", OUTPUT_TOKENS_MIN) < OUTPUT_TOKENS_MIN:
        raise RequestRefused("Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16.")
    given = body.get("input")
    items: Any = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not isinstance(items, list) or not items:
        raise RequestRefused("Missing required parameter: 'input'.")
    _check_items(items)
    messages = _read_messages(items)
    if instructions := body.get("instructions"):
        messages.insert(0, {"role": "system", "content": instructions})
    asked = {
        "model": body.get("model"),
        "messages": messages,
        "tools": [_read_tool(index, tool) for index, tool in enumerate(body.get("tools") or ())],
        "tool_choice": body.get("tool_choice"),
        "stream": body.get("stream"),
    }
    return replace(chat.parse_request(asked, headers, names), include_usage=True)


def _check_items(items: list[Any]) -> None:
    for index, item in enumerate(items):
        if not isinstance(item, dict) or not (item.get("type") or item.get("role")):
            raise RequestRefused(f"Invalid 'input[{index}]'.")
        if item.get("type") != "reasoning":
            continue
        if "encrypted_content" not in item:
            raise RequestRefused(
                f"Item with id '{item.get('id')}' not found. Items are not persisted when `store` is set to false."
            )
        if item["encrypted_content"] != sign_thinking("".join(part["text"] for part in item["summary"])):
            raise RequestRefused("The encrypted content could not be verified.")
        following: Any = items[index + 1] if index + 1 < len(items) else {}
        if following.get("role") == "user" or following.get("type") in (None, "function_call_output"):
            raise RequestRefused(
                f"Item '{item.get('id')}' of type 'reasoning' was provided without its required following item."
            )


def _read_messages(items: list[Any]) -> list[dict[str, Any]]:
    """Return the items as messages; what stands behind each other of the model is one."""
    messages: list[dict[str, Any]] = []
    for item in items:
        match item.get("type") or "message":
            case "message":
                content = item.get("content")
                read = content if isinstance(content, str) else [_read_part(part) for part in content or ()]
                messages.append({"role": item["role"], "content": read})
            case "function_call":
                if not messages or messages[-1]["role"] != "assistant":
                    messages.append({"role": "assistant", "content": None})
                function = {"name": item.get("name"), "arguments": item.get("arguments")}
                call = {"id": item.get("call_id"), "type": "function", "function": function}
                messages[-1].setdefault("tool_calls", []).append(call)
            case "function_call_output":
                output = item.get("output")
                read = output if isinstance(output, str) else [_read_part(part) for part in output or ()]
                messages.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": read})
            case _:
                pass
    return messages


def _read_part(part: Any) -> dict[str, Any]:
    if not isinstance(part, dict):
        raise RequestRefused("Invalid 'input': a part of a content must be an object.")
    is_text = part.get("type") in _TEXTS
    return {"type": "text", "text": part.get("text") or part.get("refusal")} if is_text else {"type": "file"}


def _read_tool(index: int, tool: Any) -> dict[str, Any]:
    if not isinstance(tool, dict) or not tool.get("name") or "parameters" not in tool:
        raise RequestRefused(f"Missing required parameter: 'tools[{index}].name'.")
    return {"type": "function", "function": tool}
