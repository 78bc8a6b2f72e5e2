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

NO_SIGNATURE = "skip_thought_signature_validator"

_ALPHABET = str.maketrans("-_", "+/")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")


def parse_request(body: Any, headers: Mapping[str, str], names: Mapping[str, str]) -> ModelRequest:
    """Check the request.

    Raises:
        RequestRefused: It breaks a rule; important texts are Google's (2026-11).
    """
    if not isinstance(body, dict):
        raise RequestRefused("Invalid JSON payload received.")
    contents = body.get("contents")
    if not isinstance(contents, list) or not contents:
        raise RequestRefused("* GenerateContentRequest.contents: contents is not specified")
    messages = _read_contents(contents)
    if system := _join_text((body.get("systemInstruction") or {}).get("parts") or ()):
        messages.insert(0, {"role": "system", "content": system})
    tools = [
        _read_tool(tool) for offered in body.get("tools") or () for tool in offered.get("functionDeclarations", ())
    ]
    config = (body.get("toolConfig") or {}).get("functionCallingConfig") or {}
    asked: dict[str, Any] = {"model": names["model"], "messages": messages, "tools": tools}
    asked |= {"tool_choice": "none" if config.get("mode") == "NONE" else "auto"}
    asked |= {"stream": names["method"].startswith("stream")}
    return replace(chat.parse_request(asked, headers, names), include_usage=True)


def _read_contents(contents: list[Any]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    """Calls of the turn before that wait for their results."""
    for content in contents:
        parts: Any = content.get("parts") if isinstance(content, dict) else None
        if not parts or content.get("role") not in ("user", "model"):
            raise RequestRefused("Please use a valid role: user, model.")
        responses = [part["functionResponse"] for part in parts if "functionResponse" in part]
        if len(responses) != len(calls):
            raise RequestRefused(
                "Please ensure that the number of function response parts is equal to the number of function call "
                "parts of the function call turn."
            )
        for call, response in zip(calls, responses, strict=True):
            if response.get("name") != call["function"]["name"] or not isinstance(response.get("response"), dict):
                raise RequestRefused("* GenerateContentRequest.contents: function_response is none of the call before")
            output = response["response"].get("output")
            text = output if isinstance(output, str) else orjson.dumps(response["response"]).decode()
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})
        calls = [_read_call(len(messages), at, part) for at, part in enumerate(parts) if "functionCall" in part]
        _check_signatures(parts)
        texts = [_read_part(part) for part in parts if "functionResponse" not in part and "functionCall" not in part]
        if texts or calls:
            role = "assistant" if content["role"] == "model" else "user"
            messages.append({"role": role, "content": texts} | ({"tool_calls": calls} if calls else {}))
    return messages


def _read_call(turn: int, at: int, part: dict[str, Any]) -> dict[str, Any]:
    call = part["functionCall"]
    if not isinstance(call.get("args", {}), dict):
        raise RequestRefused("Invalid value at 'contents.parts.function_call.args'")
    function = {"name": call.get("name"), "arguments": orjson.dumps(call.get("args", {})).decode()}
    return {"id": call.get("id") or f"{turn}.{at}", "type": "function", "function": function}


def _check_signatures(parts: list[dict[str, Any]]) -> None:
    called = next((part for part in parts if "functionCall" in part), None)
    if called is not None and not called.get("thoughtSignature"):
        raise RequestRefused("Function call is missing a thought_signature in functionCall parts.")
    for part in parts:
        # Its own client writes bytes in the other alphabet of base64.
        signature = (part.get("thoughtSignature") or NO_SIGNATURE).translate(_ALPHABET)
        if signature not in (NO_SIGNATURE.translate(_ALPHABET), sign_thinking("")):
            raise RequestRefused("Thought signature is not valid.")


def _read_part(part: Any) -> dict[str, Any]:
    if not isinstance(part, dict):
        raise RequestRefused("Invalid value at 'contents.parts'")
    return {"type": "text", "text": part["text"]} if "text" in part else {"type": "file"}


def _read_tool(tool: dict[str, Any]) -> dict[str, Any]:
    if not _NAME.fullmatch(tool.get("name") or ""):
        raise RequestRefused("Invalid function name. Must start with a letter or an underscore.")
    return {"type": "function", "function": tool | {"parameters": tool.get("parametersJsonSchema")}}


def _join_text(parts: Any) -> str:
    return "".join(part.get("text", "") for part in parts)
