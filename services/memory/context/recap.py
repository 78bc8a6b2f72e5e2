"""Recap: goal, insights and open tasks are repeated every turn, and a one-line insight replaces each older result.

Results are replaced a window at a time, so that requests in between share their first bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from services.memory.context.reminders import format_reminder
from services.memory.log.lines import Insight

if TYPE_CHECKING:
    from headrace.v1 import memory_pb2
    from services.memory.context.context_source import ContextSource
    from services.memory.context.message_pairing import MessageGroup, PairedMessage
    from services.memory.context.token_counter import TokenCounter

TOKENS_MAX = 4000
WINDOW = 5

PREVIEW_CHARS = 100

INSIGHT = "insight"

CUT = "\n[…]\n"


def collect_insights(source: ContextSource, groups: Sequence[MessageGroup]) -> list[tuple[PairedMessage, str]]:
    lines = [line for line in source.lines if isinstance(line, Insight) and line.context_id == source.context_id]
    written = {line.tool_call_id: line.text for line in lines if line.tool_call_id}
    answers = [answer for group in groups for _, answer in sorted(group.results.items()) if not answer.is_error]
    return [(answer, written.get(answer.message.tool_call_id) or preview_result(answer)) for answer in answers]


def preview_result(answer: PairedMessage) -> str:
    text = "".join(part.text for part in answer.message.content)
    return f"[{answer.message.name}] {' '.join(text[: 2 * PREVIEW_CHARS].split())[:PREVIEW_CHARS]}"


def condense_results(found: Sequence[tuple[PairedMessage, str]], window: int) -> None:
    """Replace the older results by their insights.

    A window of them goes once half a window of later ones exists.
    """
    count = max(0, len(found) - (window + 1) // 2) // window * window
    for answer, insight in found[:count]:
        if sum(len(part.text) for part in answer.message.content) > len(insight):
            del answer.message.content[:]
            answer.message.content.add(text=insight)
            answer.form = INSIGHT


def format_active_part(
    goal: str, found: Sequence[str], tasks: Sequence[str], counter: TokenCounter, system: str, tokens_max: int
) -> str:
    """Format goal, insights and open tasks, in what the system message leaves of `tokens_max`.

    The oldest insights go first; then the middle is cut.
    """
    room = counter.from_model_tokens(tokens_max) - counter.count_text(system)
    for first in range(len(found) + 1):
        text = _format_sections(goal, found[first:], tasks)
        if counter.count_text(format_reminder([text])) <= room:
            return text
    return _cut_middle(_format_sections(goal, [], tasks), counter, room)


def read_settings(given: memory_pb2.RecapSettings) -> tuple[int, int]:
    return given.active_prompt_tokens_max or TOKENS_MAX, max(1, given.insights_window_size or WINDOW)


def _format_sections(goal: str, found: Sequence[str], tasks: Sequence[str]) -> str:
    sections = {"Goal": [goal] if goal else [], "Insights": found, "Open tasks": tasks}
    return "\n\n".join(
        f"{name}:\n" + "\n".join(f"- {item}" for item in items) for name, items in sections.items() if items
    )


def _cut_middle(text: str, counter: TokenCounter, room: int) -> str:
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if counter.count_text(format_reminder([_drop_middle(text, middle)])) <= room:
            low = middle
        else:
            high = middle - 1
    return _drop_middle(text, low) if low else ""


def _drop_middle(text: str, chars: int) -> str:
    head = chars // 3
    return text[:head] + CUT + text[len(text) - (chars - head) :]
