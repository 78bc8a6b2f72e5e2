"""Insights: log lines about tool results, where the agent has recap on."""

from __future__ import annotations

from headrace.v1 import memory_pb2

PREVIEW_CHARS = 100


def insight_line(context_id: str | None, message: memory_pb2.LogMessage, text: str) -> memory_pb2.LogLine:
    note = memory_pb2.NoteLine(
        context_id=context_id, text=f"[{message.message.name}] {text}", tool_call_id=message.message.tool_call_id
    )
    return memory_pb2.LogLine(insight=note)


def preview(message: memory_pb2.LogMessage) -> str:
    return " ".join(text_of(message)[: 2 * PREVIEW_CHARS].split())[:PREVIEW_CHARS]


def text_of(message: memory_pb2.LogMessage) -> str:
    return "".join(part.text for part in message.message.content)
