"""Insights: a line in the log about each result of a tool, where the agent has recap on.

Previews are written with the result itself. Where a model writes them, the results are kept until the next turn
(turn/insight_writer.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.v1 import memory_pb2

if TYPE_CHECKING:
    from services.orchestrator.run.scope import Scope

PREVIEW_CHARS = 100
"""Characters of a result that its preview shows, after the name of its tool."""


def noted(scope: Scope, messages: Sequence[memory_pb2.LogMessage]) -> list[memory_pb2.LogLine]:
    """The insights to commit with these messages: none where recap is off, or where a model is to write them later."""
    recap = scope.agent.memory.recap
    if not recap.enabled:
        return []
    results = [message for message in messages if message.message.role == "tool" and message.ok]
    if recap.insights == "llm":
        scope.results_without_insight += results
        return []
    return [insight_line(scope, message, preview(message)) for message in results]


def recall(scope: Scope, message: memory_pb2.LogMessage) -> None:
    """Have an insight written about a result of an earlier owner, where a model was to do it and has not."""
    recap, call_id = scope.agent.memory.recap, message.message.tool_call_id
    if recap.enabled and recap.insights == "llm" and message.ok and not scope.recording.has_insight(call_id):
        scope.results_without_insight.append(message)


def insight_line(scope: Scope, message: memory_pb2.LogMessage, text: str) -> memory_pb2.LogLine:
    note = memory_pb2.NoteLine(
        context_id=scope.context_id,
        text=f"[{message.message.name}] {text}",
        tool_call_id=message.message.tool_call_id,
    )
    return memory_pb2.LogLine(insight=note)


def preview(message: memory_pb2.LogMessage) -> str:
    """What no model has to write: a result's own beginning, in one line."""
    return " ".join(text_of(message)[: 2 * PREVIEW_CHARS].split())[:PREVIEW_CHARS]


def text_of(message: memory_pb2.LogMessage) -> str:
    return "".join(part.text for part in message.message.content)
