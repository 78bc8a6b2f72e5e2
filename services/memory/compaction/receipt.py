"""Writes down which range a compaction replaced, and how much of it its summariser saw."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.v1 import agent_pb2, common_pb2
from services.memory.log.lines import CompactReceipt
from services.memory.log.raw_json import load_proto

if TYPE_CHECKING:
    from services.memory.compaction.transcript import Entry
    from services.memory.context.pairing import MessageGroup
    from services.memory.context.scopes import AppliedCompaction

UNSEEN_MAX = 50
"""Ranges of lines that a receipt names."""

SEEN_RATIO = 0.999
"""Share from which a text counts as seen whole."""


@dataclass(frozen=True, slots=True)
class WrittenSummary:
    text: str
    failure: str
    """Why there is none; empty on success."""

    groups_seen: int
    """Groups of the draft that the summariser was shown, from the first on."""

    seen: Sequence[float]
    """Shares of those groups' entries that it saw, by index; empty if all of each."""

    calls: int
    cached_ratio: float | None
    """Share of the calls' input that came from the provider's cache; None if it did not say."""

    usage: common_pb2.Usage | None
    """What the calls have spent; None if none can have been billed."""


@dataclass(frozen=True, slots=True)
class Unseen:
    """The groups that a summariser was shown in part or not at all."""

    groups_seen: int
    """Groups that it was shown, from the first on; 0 where there is no summary."""

    lines: Sequence[tuple[int, int]] = ()
    tokens: int = 0
    """Unscaled tokens of those."""


def measure_unseen(parts: Iterable[tuple[Entry, float]]) -> tuple[list[tuple[int, int]], int]:
    """Return lines and tokens of entries, each given with the share of it that was seen."""
    lines: list[tuple[int, int]] = []
    tokens, was_seen = 0, True
    for entry, share in parts:
        is_seen = not entry.has_media and (not entry.tokens or share >= SEEN_RATIO)
        if not is_seen:
            tokens += round(entry.tokens * max(0.0, 1 - share))
            # Nothing that was said stands between neighbours.
            first = entry.first if was_seen else lines.pop()[0]
            lines.append((first, entry.last))
        was_seen = is_seen
    return lines, tokens


def find_last_line(groups: Sequence[MessageGroup]) -> int:
    """Return the last line of the log that has a message of `groups`, or is hidden behind one; 0 if there are none."""
    lines = (said.at.n for group in groups for said in group.list_messages() if said.at is not None)
    return max((*lines, *(group.hidden[1] for group in groups if group.hidden)), default=0)


def find_former_lines(former: AppliedCompaction) -> tuple[int, int]:
    """Return the first and the last line that a summary stands for."""
    receipt = former.boundary.compact_metadata.receipt
    return (1, max(1, former.start.n - 1)) if receipt is None else (receipt.first_line, receipt.last_line)


def find_first_line(former: AppliedCompaction | None, first: int) -> int:
    """Return the first line that a summary stands for, which replaces `former` and messages from line `first` on."""
    if former is None:
        return first
    return find_former_lines(former)[0]


def join_lines(former: AppliedCompaction | None, unseen: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join ranges of lines that were not seen, by this summariser or those before it."""
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
    """Return the fields of the log record about a compaction: what it took away, and what it cost."""
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
    """Return what a compaction has spent; None if it asked no model, or in a log that does not say."""
    if not receipt.usage:
        return None
    usage = common_pb2.Usage()
    load_proto(receipt.usage, usage)
    return usage


def to_event(receipt: CompactReceipt) -> agent_pb2.CompactionReceipt:
    return agent_pb2.CompactionReceipt(
        first_line=receipt.first_line,
        last_line=receipt.last_line,
        covered_tokens=receipt.covered_tokens,
        seen_tokens=receipt.seen_tokens,
        unseen=[agent_pb2.LineRange(first_line=first, last_line=last) for first, last in receipt.unseen],
        model_calls=receipt.model_calls,
        cached_ratio=receipt.cached_ratio,
        pinned=receipt.pinned,
        usage=read_usage(receipt),
        replaced_messages=receipt.replaced_messages,
        kept_messages=receipt.kept_messages,
    )


def measure_cached_ratio(usages: Sequence[common_pb2.Usage]) -> float | None:
    """Return the share of all input that came from a cache; None if no provider said."""
    cached = [usage.cached_tokens for usage in usages if usage.HasField("cached_tokens")]
    input_tokens = sum(usage.input_tokens for usage in usages)
    return round(sum(cached) / max(1, input_tokens), 3) if cached else None
