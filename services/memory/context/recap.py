"""Recap: in a long run, single lines replace older results if that costs less than it saves.

A replacement invalidates a provider's prefix cache from there on, and a cached token costs a tenth. So results are
replaced many at a time, once the run is long enough to expect as many further turns, and short ones stay. A turn's
choice depends only on the steps before it, so that it stays the same for the rest of the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

from services.memory.log.lines import Insight
from services.memory.log.media import copy_message
from services.runtime.formats.own_tags import format_reminder

if TYPE_CHECKING:
    from headrace.v1 import llm_pb2, memory_pb2
    from services.memory.context.pairing import MessageGroup, PairedMessage
    from services.memory.context.source import ContextSource
    from services.memory.context.token_counter import TokenCounter

TOKENS_MAX = 4000
WINDOW = 3

STEPS_MIN = 7
"""Minimum steps with results; shorter runs gain too little to give up their cache."""

RESULT_TOKENS_MIN = 200
"""Minimum tokens of a result to replace; a shorter one costs no more than its place in the cache."""

CACHED_PRICE = 0.1
"""Price of a cached token relative to an uncached one: most providers' ratio (2026-11), and the worst case for a
replacement."""

PREVIEW_CHARS = 100

INSIGHT_TOKENS = 80
"""Assumed for each insight, written or not, because a choice must not change once a model has written its own."""

INSIGHT = "insight"

PLAN_TOOLS = ("_plan_", "todo_")
"""Name prefixes of tools with results that show a plan's state; older ones are useless."""

CUT = "\n[…]\n"


@dataclass(frozen=True, slots=True)
class _Step:
    """An answer with calls, and its results."""

    tokens: int
    """Tokens of all its messages, unshortened."""

    replaced: Sequence[PairedMessage]
    """Results long enough to be replaced."""

    gain: int
    """Tokens saved by replacing them."""


def condense_results(
    source: ContextSource,
    groups: Sequence[MessageGroup],
    counter: TokenCounter,
    settings: memory_pb2.RecapSettings,
    prefix_tokens: int,
    tools_tokens: int,
) -> list[llm_pb2.Message] | None:
    """Replace older results of `groups`, the run's own; return the unshortened results without an insight in the log.

    None if nothing is replaced. The first replacement adds tools of `tools_tokens`, and a provider reads
    `prefix_tokens` before the groups again.
    """
    written = _read_insights(source)
    steps = [_measure_step(group, counter) for group in groups if group.results]
    prefix_tokens += counter.count_groups(takewhile(lambda group: not group.results, groups))
    count = _choose_steps(steps, settings, prefix_tokens, tools_tokens)
    replaced = [answer for step in steps[:count] for answer in step.replaced]
    without_insight = [
        copy_message(answer.message) for answer in replaced if answer.message.tool_call_id not in written
    ]
    for answer in replaced:
        insight = _make_insight(answer, written)
        del answer.message.content[:]
        answer.message.content.add(text=insight)
        answer.form = INSIGHT
    return without_insight if replaced else None


def format_active_part(
    goal: str, tasks: Sequence[str], counter: TokenCounter, settings: memory_pb2.RecapSettings, system: str
) -> str:
    """Format goal and open tasks within the settings' tokens, less the system message; the middle is cut."""
    room = counter.from_model_tokens(settings.active_prompt_tokens_max or TOKENS_MAX) - counter.count_text(system)
    sections = {"Goal": [goal] if goal else [], "Open tasks": tasks}
    text = "\n\n".join(
        f"{name}:\n" + "\n".join(f"- {item}" for item in items) for name, items in sections.items() if items
    )
    return text if counter.count_text(format_reminder([text])) <= room else _cut_middle(text, counter, room)


def _read_insights(source: ContextSource) -> dict[str, str]:
    lines = [line for line in source.lines if isinstance(line, Insight) and line.context_id == source.context_id]
    return {line.tool_call_id: line.text for line in lines if line.tool_call_id}


def _measure_step(group: MessageGroup, counter: TokenCounter) -> _Step:
    replaced: list[PairedMessage] = []
    gain = 0
    for _, answer in sorted(group.results.items()):
        whole, is_plan = counter.count_paired(answer), answer.message.name.startswith(PLAN_TOOLS)
        if answer.is_error or is_plan or whole < RESULT_TOKENS_MIN:
            continue
        replaced.append(answer)
        gain += whole - INSIGHT_TOKENS
    return _Step(counter.count_group(group), replaced, gain)


def _choose_steps(
    steps: Sequence[_Step], settings: memory_pb2.RecapSettings, prefix_tokens: int, tools_tokens: int
) -> int:
    """Return how many of the first steps are replaced by insights, given the knowledge at each turn.

    The last step's results are always unshortened.
    """
    window, chosen, has_begun = settings.insights_window_size or WINDOW, 0, False
    for done in range(STEPS_MIN, len(steps) + 1):
        waiting = steps[chosen : done - 1]
        if len(waiting) < min(window, STEPS_MIN - 1):
            continue
        # As many turns as before are expected to follow, including the current one.
        turns = min(done, settings.steps_max - done + 1) if settings.steps_max else done
        gain = sum(step.gain for step in waiting)
        read_again = sum(step.tokens for step in waiting) - gain
        if not has_begun:
            read_again += prefix_tokens + tools_tokens
        lost = (1 - CACHED_PRICE) * read_again + (0 if has_begun else CACHED_PRICE * tools_tokens * turns)
        if CACHED_PRICE * gain * turns > lost:
            chosen, has_begun = done - 1, True
    return chosen


def _make_insight(answer: PairedMessage, written: dict[str, str]) -> str:
    message = answer.message
    text = "".join(part.text for part in message.content)
    preview = f"[{message.name}] {' '.join(text[: 2 * PREVIEW_CHARS].split())[:PREVIEW_CHARS]}"
    return (
        f"{written.get(message.tool_call_id) or preview} [{len(text):,} characters: read_result {message.tool_call_id}]"
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
