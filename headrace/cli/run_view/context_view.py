"""Displays the contents of the context window of a chat's next request, for `headrace context` and `/context`."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.cli.run_view.answers import Show
from headrace.cli.run_view.notices import describe_result
from headrace.cli.run_view.printing import describe_usage, print_text
from headrace.v1 import agent_pb2

BAR_CHARS = 30
"""Width of the bar for a full window."""

PINNED_CHARS_MAX = 100
"""Length at which an item is cut for display; the summary keeps all of it."""

UNSEEN_MAX = 5
"""Maximum number of line ranges shown."""

GONE = ("summarised", "left_out")


def _describe_window(window: agent_pb2.GetContextResponse) -> Iterator[str]:
    room = window.context_window_tokens
    share = f" of {room:,} ({window.tokens / room:.0%})" if room else ""
    yield f"{window.agent_key}, {window.model}: {window.tokens:,} tokens{share}"
    for part in window.parts:
        if part.state not in GONE:
            bar = "█" * max(1, round(BAR_CHARS * part.tokens / (room or window.tokens or 1)))
            why = f"  {part.why}" if part.why else ""
            yield f"  {part.kind:9} {part.tokens:>9,}  {bar} {part.count or ''}{why}"
    for part in window.parts:
        if part.state in GONE:
            lines = f"lines {part.first_n}-{part.last_n}" if part.first_n else ""
            state = part.state.replace("_", " ")
            yield f"  {state}: {part.count} {part.kind}, {part.tokens:,} tokens, {lines}: {part.why}"
    if window.HasField("last_cached_ratio"):
        yield f"  {window.last_cached_ratio:.0%} of the last call came from the provider's cache"
    if window.fill_ratio:
        yield f"  the chat is {window.fill_ratio:.0%} full"
    if window.compaction_due:
        yield "  a compaction comes before the next turn"
    if window.HasField("compaction"):
        yield from _describe_compaction(window.compaction)
    if window.HasField("chat_usage"):
        yield f"spent in this chat: {describe_usage(window.chat_usage)}"
    if window.HasField("between_runs_usage"):
        yield f"  of that by summaries between runs: {describe_usage(window.between_runs_usage)}"


def _describe_compaction(compaction: agent_pb2.ContextCompaction) -> Iterator[str]:
    """Yield lines that describe the compaction at the start of the window."""
    moment = "in a run" if compaction.run_id else "between runs"
    edited = ", edited since" if compaction.is_edited else ""
    yield (
        f"compacted ({compaction.trigger}, {moment}, {compaction.strategy}{edited}): "
        f"{describe_result(compaction)}; the summary is line {compaction.n}"
    )
    if compaction.HasField("receipt"):
        yield from _describe_receipt(compaction.receipt)
    for section in compaction.sections:
        yield f"  {section.tokens:>9,}  {section.title or 'Text'}"


def _describe_receipt(receipt: agent_pb2.CompactionReceipt) -> Iterator[str]:
    counts = (
        f", {receipt.replaced_messages} messages; {receipt.kept_messages} stay" if receipt.replaced_messages else ""
    )
    yield f"  it replaces lines {receipt.first_line}-{receipt.last_line}{counts}"
    unseen = [f"{lines.first_line}-{lines.last_line}" for lines in receipt.unseen]
    more = ", …" if len(unseen) > UNSEEN_MAX else ""
    omission = f"; not all of lines {', '.join(unseen[:UNSEEN_MAX])}{more}" if unseen else ""
    yield f"  its writer saw {receipt.seen_tokens:,} of {receipt.covered_tokens:,} tokens{omission}"
    if receipt.HasField("usage"):
        cached = f", {receipt.cached_ratio:.0%} cached" if receipt.HasField("cached_ratio") else ""
        yield f"  it cost {describe_usage(receipt.usage)}{cached}"
    for item in receipt.pinned:
        text = " ".join(item.split())
        yield f"  kept: {text[:PINNED_CHARS_MAX]}{'…' if len(text) > PINNED_CHARS_MAX else ''}"


def _print_window(window: agent_pb2.GetContextResponse) -> None:
    for line in _describe_window(window):
        print_text(line)


CONTEXT = Show(_print_window)
