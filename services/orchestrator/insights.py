"""Insights: a line in the log about each result of a tool, where the agent has recap on (memory.md).

Previews are written with the result itself. Where a model writes them, the results of a turn are told to it together,
before the next turn; what it does not write is a preview.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.v1 import memory_pb2
from services.orchestrator import aside

if TYPE_CHECKING:
    from services.orchestrator.peers import Peers
    from services.orchestrator.scope import Scope

PREVIEW_CHARS = 100
"""Of a result, behind the name of its tool."""

INSIGHT_CHARS_MAX = 300
"""Of a line that a model writes."""

RESULT_CHARS_MAX = 8000
"""Of a result, that much is told to the model."""

STAGE = "insight"

SYSTEM = """\
You keep notes for an agent that will not see these results again. For each numbered result write one line, \
"<number>. <what it says that matters for the task, with names and figures>". Write nothing else."""

_LINE = re.compile(r"^[ \t]*([0-9]{1,4})[.):][ \t]*(\S.*)$", re.MULTILINE)


def noted(scope: Scope, messages: Sequence[memory_pb2.LogMessage]) -> list[memory_pb2.LogLine]:
    """The insights to commit with these messages: none where recap is off, or where a model is to write them later."""
    recap = scope.agent.memory.recap
    if not recap.enabled:
        return []
    results = [message for message in messages if message.message.role == "tool" and message.ok]
    if recap.insights == "llm":
        scope.results_without_insight += results
        return []
    return [_insight(scope, message, _preview(message)) for message in results]


def recall(scope: Scope, message: memory_pb2.LogMessage) -> None:
    """Have an insight written about a result of an earlier owner, where a model was to do it and has not."""
    recap, call_id = scope.agent.memory.recap, message.message.tool_call_id
    if recap.enabled and recap.insights == "llm" and message.ok and not scope.recording.has_insight(call_id):
        scope.results_without_insight.append(message)


async def write(scope: Scope, peers: Peers) -> None:
    """Write the insights of the results that came since the last turn, where a model is to write them."""
    results, scope.results_without_insight = scope.results_without_insight, []
    if not results:
        return
    told = await aside.ask(scope.run, peers, STAGE, SYSTEM, _listed(results))
    found = {int(number): text.strip()[:INSIGHT_CHARS_MAX] for number, text in _LINE.findall(told)}
    lines = [
        _insight(scope, message, found.get(number) or _preview(message))
        for number, message in enumerate(results, start=1)
    ]
    await scope.run.log.append(lines)


def _listed(results: Sequence[memory_pb2.LogMessage]) -> str:
    return "\n\n".join(
        f"{number}. {message.message.name}:\n{_text(message)[:RESULT_CHARS_MAX]}"
        for number, message in enumerate(results, start=1)
    )


def _insight(scope: Scope, message: memory_pb2.LogMessage, text: str) -> memory_pb2.LogLine:
    note = memory_pb2.NoteLine(
        context_id=scope.context_id,
        text=f"[{message.message.name}] {text}",
        tool_call_id=message.message.tool_call_id,
    )
    return memory_pb2.LogLine(insight=note)


def _preview(message: memory_pb2.LogMessage) -> str:
    """What no model has to write: a result's own beginning, in one line."""
    return " ".join(_text(message)[: 2 * PREVIEW_CHARS].split())[:PREVIEW_CHARS]


def _text(message: memory_pb2.LogMessage) -> str:
    return "".join(part.text for part in message.message.content)
