"""Checks the request as strictly as the real service does, and reads it as one of chat completions."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from services.simulator.protocols.common.signatures import sign_thinking
from services.simulator.protocols.openai import request as chat
from services.simulator.requests.model_request import ModelRequest, RequestRefused

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_DOCUMENT_NAME = re.compile(r"(?!.*\s\s)[A-Za-z0-9\s()\[\]-]{1,200}")


def parse_request(body: Any, headers: Mapping[str, str], names: Mapping[str, str]) -> ModelRequest:
    """Check the request.

    Raises:
        RequestRefused: It breaks a rule; important texts are AWS's (2026-11).
    """
    if not isinstance(body, dict):
        raise RequestRefused("The request body is not valid JSON.")
    turns = body.get("messages")
    if not isinstance(turns, list) or not turns:
        raise RequestRefused("A conversation must start with a user message.")
    messages = _read_turns(turns)
    tools = [_read_tool(tool) for tool in (body.get("toolConfig") or {}).get("tools", ()) if "toolSpec" in tool]
    if not tools and any(message.get("tool_calls") for message in messages):
        raise RequestRefused("The toolConfig field must be defined when using toolUse and toolResult content blocks.")
    if system := "".join(block.get("text", "") for block in body.get("system") or ()):
        messages.insert(0, {"role": "system", "content": system})
    asked: dict[str, Any] = {"model": names["model"], "messages": messages, "tools": tools}
    asked |= {"stream": names["method"] == "converse-stream"}
    return replace(chat.parse_request(asked, headers, names), include_usage=True)


def _read_turns(turns: list[Any]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for at, turn in enumerate(turns):
        if not isinstance(turn, dict) or turn.get("role") != ("assistant" if at % 2 else "user"):
            raise RequestRefused("A conversation must alternate between user and assistant roles.")
        if not (blocks := turn.get("content")):
            raise RequestRefused(f"The content field in the Message object at messages.{at} is empty.")
        calls = [_read_call(block["toolUse"]) for block in blocks if "toolUse" in block]
        for block in blocks:
            if "toolResult" in block:
                result = block["toolResult"]
                parts = [_read_part(part) for part in result["content"]]
                messages.append({"role": "tool", "tool_call_id": result["toolUseId"], "content": parts})
        parts = [_read_part(block) for block in blocks if not block.keys() & {"toolUse", "toolResult", "cachePoint"}]
        if any(block.keys() & {"document"} for block in blocks) and not any("text" in block for block in blocks):
            raise RequestRefused("A text block must be included when a document is.")
        if parts or calls:
            messages.append({"role": turn["role"], "content": parts} | ({"tool_calls": calls} if calls else {}))
    return messages


def _read_call(call: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(call.get("input"), dict):
        raise RequestRefused("The value at toolUse.input must be an object.")
    function = {"name": call.get("name"), "arguments": orjson.dumps(call["input"]).decode()}
    return {"id": call.get("toolUseId"), "type": "function", "function": function}


def _read_part(block: Any) -> dict[str, Any]:
    if not isinstance(block, dict) or len(block) != 1:
        raise RequestRefused("Unknown parameter in a content block.")
    if "text" in block:
        if not block["text"].strip():
            raise RequestRefused("The text field in the ContentBlock object is blank.")
        return {"type": "text", "text": block["text"]}
    if "document" in block and not _DOCUMENT_NAME.fullmatch(block["document"]["name"]):
        raise RequestRefused("The document file name can only contain alphanumeric characters.")
    thought = (block.get("reasoningContent") or {}).get("reasoningText")
    if thought is not None and thought.get("signature") != sign_thinking(thought["text"]):
        raise RequestRefused("Invalid `signature` in `thinking` block")
    return {"type": "file"}


def _read_tool(tool: dict[str, Any]) -> dict[str, Any]:
    spec = tool["toolSpec"]
    if not _NAME.fullmatch(spec.get("name") or "") or spec.get("description") == "":
        raise RequestRefused("Value at 'toolConfig.tools.1.member.toolSpec' failed to satisfy constraint.")
    return {"type": "function", "function": spec | {"parameters": spec["inputSchema"]["json"]}}
