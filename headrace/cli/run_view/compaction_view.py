"""Tells in words what a compaction did: as an event has it, and as the view of a window does."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.cli.run_view.costs import describe_usage
from headrace.v1 import agent_pb2

PINNED_CHARS_MAX = 100
"""A longer item is cut; the summary has all of it."""

UNSEEN_MAX = 5
"""Ranges of lines that are named."""


def describe_event(done: agent_pb2.CompactionComplete | agent_pb2.CompactionFallback) -> str:
    """Describe a compaction in one sentence."""
    reason = f" without a summary ({done.reason})" if isinstance(done, agent_pb2.CompactionFallback) else ""
    text = f"compacted{reason}: {done.pre_tokens} tokens are {done.post_tokens}"
    receipt = done.receipt
    if not done.HasField("receipt"):
        return text
    if receipt.replaced_messages:
        text += f"; lines {receipt.first_line}-{receipt.last_line}, {receipt.replaced_messages} messages"
    return f"{text}; {describe_usage(receipt.usage)}" if receipt.HasField("usage") else text


def describe_compaction(compaction: agent_pb2.ContextCompaction) -> Iterator[str]:
    """Describe the compaction that a window stands behind, a line for each thing there is to say."""
    moment = "in a run" if compaction.run_id else "between runs"
    edited = ", edited since" if compaction.is_edited else ""
    yield (
        f"compacted ({compaction.trigger}, {moment}, {compaction.strategy}{edited}): "
        f"{compaction.pre_tokens:,} tokens are {compaction.post_tokens:,}; the summary is line {compaction.n}"
    )
    if compaction.HasField("receipt"):
        yield from _describe_receipt(compaction.receipt)
    if compaction.files_included:
        yield f"  files: {', '.join(compaction.files_included)}"
    for section in compaction.sections:
        yield f"  {section.tokens:>9,}  {section.title or 'Text'}"


def _describe_receipt(receipt: agent_pb2.CompactionReceipt) -> Iterator[str]:
    counts = (
        f", {receipt.replaced_messages} messages; {receipt.kept_messages} stay" if receipt.replaced_messages else ""
    )
    yield f"  it stands for lines {receipt.first_line}-{receipt.last_line}{counts}"
    unseen = [f"{lines.first_line}-{lines.last_line}" for lines in receipt.unseen]
    more = ", …" if len(unseen) > UNSEEN_MAX else ""
    told = f"; not all of lines {', '.join(unseen[:UNSEEN_MAX])}{more}" if unseen else ""
    yield f"  its writer saw {receipt.seen_tokens:,} of {receipt.covered_tokens:,} tokens{told}"
    if receipt.HasField("usage"):
        cached = f", {receipt.cached_ratio:.0%} cached" if receipt.HasField("cached_ratio") else ""
        yield f"  it cost {describe_usage(receipt.usage)}{cached}"
    for item in receipt.pinned:
        text = " ".join(item.split())
        yield f"  kept: {text[:PINNED_CHARS_MAX]}{'…' if len(text) > PINNED_CHARS_MAX else ''}"
