"""Records the range that a compaction replaced, and how much of it the summarizer saw."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.v1 import agent_pb2, common_pb2
from services.memory.log.lines import CompactReceipt
from services.memory.log.raw_json import load_proto
from services.runtime.formats.same_fields import copy_fields

if TYPE_CHECKING:
    from services.memory.compaction.transcript import Entry
    from services.memory.context.pairing import MessageGroup
    from services.memory.context.scopes import AppliedCompaction

UNSEEN_MAX = 50
"""Maximum ranges of lines in a receipt."""

SEEN_RATIO = 0.999
"""Share from which a text counts as seen whole."""


@dataclass(frozen=True, slots=True)
class WrittenSummary:
    text: str
    failure: str
    """Why there is no summary; empty on success."""

    groups_seen: int
    """Number of the draft's groups, from the first, that the summarizer was shown."""

    seen: Sequence[float]
    """Share seen of each of those groups' entries, by index; empty if all of each."""

    calls: int
    cached_ratio: float | None
    """Share of the calls' input served from the provider's cache; None if not reported."""

    usage: common_pb2.Usage | None
    """Usage of the calls; None if none can have been billed."""


@dataclass(frozen=True, slots=True)
class Unseen:
    """The groups that a summarizer saw only in part or not at all."""

    groups_seen: int
    """Number of groups shown, from the first; 0 without a summary."""

    lines: Sequence[tuple[int, int]] = ()
    tokens: int = 0
    """Their unscaled tokens."""


def measure_unseen(parts: Iterable[tuple[Entry, float]]) -> tuple[list[tuple[int, int]], int]:
    """Return the unseen lines and tokens of entries, each given with its share that was seen."""
    lines: list[tuple[int, int]] = []
    tokens, was_seen = 0, True
    for entry, share in parts:
        is_seen = not entry.has_media and (not entry.tokens or share >= SEEN_RATIO)
        if not is_seen:
            tokens += round(entry.tokens * max(0.0, 1 - share))
            # Neighbouring entries have no other messages between them.
            first = entry.first if was_seen else lines.pop()[0]
            lines.append((first, entry.last))
        was_seen = is_seen
    return lines, tokens


def find_last_line(groups: Sequence[MessageGroup]) -> int:
    """Return the log's last line with a message of `groups`, or hidden by one of them; 0 if there are none."""
    lines = (paired.at.n for group in groups for paired in group.list_messages() if paired.at is not None)
    return max((*lines, *(group.hidden[1] for group in groups if group.hidden)), default=0)


def find_former_lines(former: AppliedCompaction) -> tuple[int, int]:
    """Return the first and last line that a summary replaces."""
    receipt = former.boundary.compact_metadata.receipt
    return (1, max(1, former.start.n - 1)) if receipt is None else (receipt.first_line, receipt.last_line)


def join_lines(former: AppliedCompaction | None, unseen: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join the ranges of lines not seen by this summarizer or earlier ones."""
    receipt = None if former is None else former.boundary.compact_metadata.receipt
    joined: list[tuple[int, int]] = []
    ranges: list[tuple[int, int]] = [*([] if receipt is None else receipt.unseen), *unseen]
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return joined[-UNSEEN_MAX:]


def count_messages(groups: Iterable[MessageGroup]) -> int:
    return sum(len(group.list_messages()) for group in groups)


def describe_receipt(receipt: CompactReceipt) -> dict[str, int | float]:
    """Return a compaction's fields for the log record: what it removed, and its cost."""
    usage = read_usage(receipt) or common_pb2.Usage()
    return {
        "replaced_messages": receipt.replaced_messages,
        "kept_messages": receipt.kept_messages,
        "model_calls": receipt.model_calls,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cost_usd": usage.cost_usd,
    }


def read_usage(receipt: CompactReceipt) -> common_pb2.Usage | None:
    """Return a compaction's usage; None if it called no model, or an old log does not record it."""
    if not receipt.usage:
        return None
    return load_proto(receipt.usage, common_pb2.Usage())


def to_event(receipt: CompactReceipt) -> agent_pb2.CompactionReceipt:
    return copy_fields(
        receipt,
        agent_pb2.CompactionReceipt,
        unseen=[agent_pb2.LineRange(first_line=first, last_line=last) for first, last in receipt.unseen],
        cached_ratio=receipt.cached_ratio,
        usage=read_usage(receipt),
    )


def measure_cached_ratio(usages: Sequence[common_pb2.Usage]) -> float | None:
    """Return the share of all input that came from a cache; None if no provider reported it."""
    cached = [usage.cached_tokens for usage in usages if usage.HasField("cached_tokens")]
    input_tokens = sum(usage.input_tokens for usage in usages)
    return round(sum(cached) / max(1, input_tokens), 3) if cached else None
