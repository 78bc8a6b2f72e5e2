"""Checks the request as strictly as the real service does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from services.simulator.protocols.common.signatures import sign_thinking
from services.simulator.requests.model_request import ModelRequest, RequestRefused, SaidText, ToolResult
from services.simulator.requests.user_texts import drop_reminders, read_reminder, read_texts

if TYPE_CHECKING:
    from collections.abc import Mapping

THINKING = ("thinking", "redacted_thinking")


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
