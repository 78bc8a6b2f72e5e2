"""Rules of a request that hold for every protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import InvalidRequest

if TYPE_CHECKING:
    from headrace.v1 import llm_pb2

THINKING_TOKENS = {"LOW": 1_024, "MEDIUM": 4_096, "HIGH": 16_384}


def check_tool_choice(request: llm_pb2.ChatRequest) -> None:
    """Raise InvalidRequest when `tool_choice` names a tool that is not offered."""
    choice = request.tool_choice
    if choice not in {tool.name for tool in request.tools}:
        raise InvalidRequest.of("toolChoice", f"{choice!r} is neither none, auto, required nor an offered tool")
