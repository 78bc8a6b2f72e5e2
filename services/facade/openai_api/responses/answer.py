"""The response object: a run as OpenAI's Responses API shows it. Its id is resp_<runId>."""

from __future__ import annotations

import uuid
from typing import Any

from headrace.v1 import common_pb2
from services.facade.openai_api import errors
from services.facade.openai_api.events import Called, Ended, Started
from services.facade.openai_api.output import Block, Output
from services.facade.openai_api.request import Asked
from services.facade.openai_api.responses.request import CONVERSATION, RESPONSE

STATUSES = {"stop": "completed", "calls": "completed", "failed": "failed", "cancelled": "cancelled"}
"""The others are incomplete, for a reason of INCOMPLETE."""

INCOMPLETE = {"content_filter": "content_filter"}
"""The others, length, budget and steps, are max_output_tokens."""


def build_response(asked: Asked, start: Started, output: Output, end: Ended | None) -> dict[str, Any]:
    """The whole object; without an `end` it is in progress."""
    status = STATUSES.get(end.reason, "incomplete") if end else "in_progress"
    blocks = [item(block, is_done=end is not None) for block in output.blocks.values()]
    return _echo(asked) | {
        "id": RESPONSE + uuid.UUID(start.run_id).hex,
        "object": "response",
        "created_at": start.at_s,
        "model": start.agent_key,
        "status": status,
        "error": _error(end),
        "incomplete_details": {"reason": INCOMPLETE.get(end.reason, "max_output_tokens")}
        if end and status == "incomplete"
        else None,
        "output": blocks + [call_item(call, start.run_id) for call in output.calls],
        "usage": usage(end.usage) if end and end.usage else None,
        "conversation": {"id": CONVERSATION + start.chat_id},
        "metadata": asked.metadata | {"run_id": start.run_id, "chat_id": start.chat_id},
    }


def item(block: Block, *, is_done: bool = False) -> dict[str, Any]:
    """A block as an item of the output."""
    status = "completed" if block.is_closed else "incomplete" if is_done else "in_progress"
    content = [part(block)] if block.pieces or block.is_closed or is_done else []
    if block.kind == "reasoning":
        return {"id": item_id(block), "type": "reasoning", "summary": [], "content": content, "status": status}
    return {"id": item_id(block), "type": "message", "role": "assistant", "content": content, "status": status}


def part(block: Block) -> dict[str, Any]:
    """The one content part of a block."""
    if block.kind == "reasoning":
        return {"type": "reasoning_text", "text": block.text}
    return {"type": "output_text", "text": block.text, "annotations": [], "logprobs": []}


def item_id(block: Block) -> str:
    return f"{'rs' if block.kind == 'reasoning' else 'msg'}_{block.id}"


def call_item(call: Called, run_id: str, *, is_done: bool = True) -> dict[str, Any]:
    """A function call as an item of the output."""
    return {
        "id": f"fc_{call.tool_id}",
        "type": "function_call",
        "call_id": call.id(run_id),
        "name": call.name,
        "arguments": call.arguments if is_done else "",
        "status": "completed" if is_done else "in_progress",
    }


def usage(spent: common_pb2.Usage) -> dict[str, Any]:
    """The tokens of the whole run."""
    return {
        "input_tokens": spent.input_tokens,
        "input_tokens_details": {"cached_tokens": spent.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": spent.output_tokens,
        "output_tokens_details": {"reasoning_tokens": spent.reasoning_tokens},
        "total_tokens": spent.input_tokens + spent.output_tokens,
    }


def _error(end: Ended | None) -> dict[str, Any] | None:
    if end is None or end.failure is None:
        return None
    form = errors.of_failure(end.failure)
    return {"code": form["code"], "message": form["message"]}


def _echo(asked: Asked) -> dict[str, Any]:
    """What the API says again of the request; what an agent decides is null."""
    return {
        "background": asked.background,
        "previous_response_id": asked.previous_response_id or None,
        "instructions": None,
        "max_output_tokens": None,
        "parallel_tool_calls": True,
        "reasoning": {"effort": None, "summary": None},
        "store": True,
        "temperature": None,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [{"type": "function", "name": tool.name} for tool in asked.tools],
        "top_p": None,
        "truncation": "disabled",
    }
