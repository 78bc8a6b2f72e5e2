"""Builds a response object of OpenAI's Responses API from a run; its id is resp_<runId>."""

from __future__ import annotations

import uuid
from typing import Any

from headrace.runs.parts import Block
from headrace.v1 import common_pb2
from services.facade.openai_api import errors
from services.facade.openai_api.events import FunctionCall, Output, RunEnded, RunStarted, get_kind
from services.facade.openai_api.request import AgentRequest
from services.facade.openai_api.responses.request import CONVERSATION_PREFIX, RESPONSE_PREFIX

STATUSES = {"stop": "completed", "calls": "completed", "failed": "failed", "cancelled": "cancelled"}
"""All other reasons map to incomplete."""

INCOMPLETE = {"content_filter": "content_filter"}
"""All other reasons map to max_output_tokens."""


def build_response(request: AgentRequest, start: RunStarted, output: Output, end: RunEnded | None) -> dict[str, Any]:
    """Build the response object; without an `end`, it is in progress."""
    status = STATUSES.get(end.reason, "incomplete") if end else "in_progress"
    blocks = [build_item(block, is_done=end is not None) for block in output.blocks.values()]
    failure = errors.build_failure_error(end.failure) if end and end.failure is not None else None
    return _echo_request(request) | {
        "id": RESPONSE_PREFIX + uuid.UUID(start.run_id).hex,
        "object": "response",
        "created_at": start.at_s,
        "model": start.agent_key,
        "status": status,
        "error": {"code": failure["code"], "message": failure["message"]} if failure else None,
        "incomplete_details": {"reason": INCOMPLETE.get(end.reason, "max_output_tokens")}
        if end and status == "incomplete"
        else None,
        "output": blocks + [build_call_item(call, start.run_id) for call in output.calls],
        "usage": build_usage(end.usage) if end and end.usage else None,
        "conversation": {"id": CONVERSATION_PREFIX + start.chat_id},
        "metadata": request.metadata | {"run_id": start.run_id, "chat_id": start.chat_id},
    }


def build_item(block: Block, *, is_done: bool = False) -> dict[str, Any]:
    status = "completed" if block.is_complete else "incomplete" if is_done else "in_progress"
    content = [build_part(block)] if block.pieces or block.is_complete or is_done else []
    if get_kind(block) == "reasoning":
        return {"id": format_item_id(block), "type": "reasoning", "summary": [], "content": content, "status": status}
    return {"id": format_item_id(block), "type": "message", "role": "assistant", "content": content, "status": status}


def build_part(block: Block) -> dict[str, Any]:
    if get_kind(block) == "reasoning":
        return {"type": "reasoning_text", "text": block.text}
    return {"type": "output_text", "text": block.text, "annotations": [], "logprobs": []}


def format_item_id(block: Block) -> str:
    return f"{'rs' if get_kind(block) == 'reasoning' else 'msg'}_{block.id}"


def build_call_item(call: FunctionCall, run_id: str, *, is_done: bool = True) -> dict[str, Any]:
    return {
        "id": f"fc_{call.tool_id}",
        "type": "function_call",
        "call_id": call.format_id(run_id),
        "name": call.name,
        "arguments": call.arguments if is_done else "",
        "status": "completed" if is_done else "in_progress",
    }


def build_usage(spent: common_pb2.Usage) -> dict[str, Any]:
    return {
        "input_tokens": spent.input_tokens,
        "input_tokens_details": {"cached_tokens": spent.cached_tokens, "cache_write_tokens": spent.cache_write_tokens},
        "output_tokens": spent.output_tokens,
        "output_tokens_details": {"reasoning_tokens": spent.reasoning_tokens},
        "total_tokens": spent.input_tokens + spent.output_tokens,
    }


def _echo_request(request: AgentRequest) -> dict[str, Any]:
    """Return the request's fields as echoed in a response; fields decided by the agent are null."""
    return {
        "background": request.background,
        "previous_response_id": request.previous_response_id or None,
        "instructions": None,
        "max_output_tokens": None,
        "parallel_tool_calls": request.parallel_tool_calls is not False,
        "reasoning": {"effort": None, "summary": None},
        "store": True,
        "temperature": None,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [{"type": "function", "name": tool.name} for tool in request.tools.values()],
        "top_p": None,
        "truncation": "disabled",
    }
