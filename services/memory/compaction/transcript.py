"""A conversation as text in chunks, for a summarizer with a window too small for it.

Messages take precedence over tool results: if there is too much, results are shortened first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from services.memory.context.source import get_position
from services.memory.log.media import describe_media, get_media

if TYPE_CHECKING:
    from services.memory.context.pairing import MessageGroup, PairedMessage

CountText: TypeAlias = Callable[[str], int]

LABEL_TOKENS = 16
"""Tokens reserved for the line above each text."""

FILL_RATIO = 0.9
"""Share of the chunks to which texts are shortened, because their tokens are then estimated."""

ENTRY_TOKENS_MIN = 48
"""Minimum tokens of a text, including its label; a text with less room is left out."""

PIECE_TOKENS_MIN = 64
"""Minimum tokens of a piece; a smaller rest of a chunk stays unused."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A text of the conversation."""

    first: int
    """Line of the log in which it begins."""

    last: int
    label: str
    text: str
    tokens: int
    is_result: bool = False
    has_media: bool = False
    """Whether it had an image, audio or file, now described in words."""


@dataclass(slots=True)
class Chunk:
    blocks: list[str] = field(default_factory=list[str])
    pieces: list[tuple[int, float]] = field(default_factory=list[tuple[int, float]])
    """The entries in it by index, each with the share of its text contained here."""

    def find_lines(self, entries: Sequence[Entry]) -> tuple[int, int]:
        return entries[self.pieces[0][0]].first, entries[self.pieces[-1][0]].last

    @property
    def text(self) -> str:
        return "\n\n".join(self.blocks)


def list_entries(groups: Iterable[MessageGroup], count: CountText) -> Iterator[Entry]:
    for group in groups:
        n = get_position(group).n
        for paired in group.list_messages():
            yield _make_entry(paired, paired.at.n if paired.at is not None else n, count)


def _make_entry(paired: PairedMessage, n: int, count: CountText) -> Entry:
    message, has_media = paired.message, False
    parts: list[str] = []
    for part in message.content:
        media = get_media(part)
        has_media = has_media or media is not None
        parts.append(part.text if media is None else describe_media(media))
    parts.extend(f"calls {call.name} {call.arguments} ({call.id})" for call in message.tool_calls)
    text = "\n".join(part for part in parts if part)
    is_result = message.role == "tool"
    label = f"result of {message.name} ({message.tool_call_id})" if is_result else message.role
    return Entry(n, n, label, text, count(text), is_result, has_media)


def cut_chunks(entries: Sequence[Entry], room: int, chunks_max: int, count: CountText) -> list[Chunk]:
    """Cut entries into at most `chunks_max` chunks of `room` tokens each; the last entries may be left out."""
    limits = _limit_sizes(entries, int(FILL_RATIO * room * chunks_max))
    chunks = [Chunk()]
    left = room
    for index, (entry, limit) in enumerate(zip(entries, limits, strict=True)):
        if limit < 0:
            continue
        rest, share = _shorten_text(entry, limit)
        whole, is_first = max(1, len(rest)), True
        while rest or is_first:
            label = f"[line {entry.first}, {entry.label}{'' if is_first else ', continued'}]"
            piece = _take_fitting(rest, left - LABEL_TOKENS, count)
            if piece is None:
                if len(chunks) == chunks_max:
                    return [chunk for chunk in chunks if chunk.pieces]
                chunks.append(Chunk())
                left = room
                continue
            chunks[-1].blocks.append(f"{label}\n{piece}")
            chunks[-1].pieces.append((index, share * (len(piece) / whole if rest else 1)))
            left -= count(piece) + LABEL_TOKENS
            rest, is_first = rest[len(piece) :], False
    return [chunk for chunk in chunks if chunk.pieces]


def _limit_sizes(entries: Sequence[Entry], room: int) -> list[int]:
    """Return the number of tokens to show of each entry: messages in full, then results as far as room remains.

    If even the messages do not fit, the latest are shown.
    """
    costs = [entry.tokens + LABEL_TOKENS for entry in entries]
    texts = [index for index, entry in enumerate(entries) if not entry.is_result][-(room // ENTRY_TOKENS_MIN or 1) :]
    said_max = share_room([costs[index] for index in texts], room)
    left = room - sum(min(costs[index], said_max) for index in texts)
    results = [index for index, entry in enumerate(entries) if entry.is_result]
    results_max = share_room([costs[index] for index in results], left)
    limits = dict.fromkeys(texts, said_max) | dict.fromkeys(
        results, results_max if results_max >= ENTRY_TOKENS_MIN else 0
    )
    return [min(cost, limits.get(index, 0)) - LABEL_TOKENS for index, cost in enumerate(costs)]


def share_room(sizes: Sequence[int], room: int) -> int:
    """Return the size cap with which all sizes together fit in `room`."""
    left = room
    ordered = sorted(sizes)
    for index, size in enumerate(ordered):
        if size * (len(ordered) - index) > left:
            return max(0, left // (len(ordered) - index))
        left -= size
    return max(ordered, default=0)


def _shorten_text(entry: Entry, limit: int) -> tuple[str, float]:
    """Return head and tail of an entry's text, and their share of it."""
    chars = len(entry.text) * limit // max(1, entry.tokens)
    if chars >= len(entry.text):
        return entry.text, 1
    head, tail = chars - chars // 2, chars // 2
    note = f"\n[… {len(entry.text) - chars:,} of {len(entry.text):,} characters left out …]\n"
    return entry.text[:head] + note + entry.text[len(entry.text) - tail :], chars / len(entry.text)


def _take_fitting(text: str, room: int, count: CountText) -> str | None:
    """Return the longest beginning of `text` that fits; None if it would be too short."""
    if (cost := count(text)) <= room:
        return text
    while room >= PIECE_TOKENS_MIN and len(text) > 1:
        text = text[: max(1, min(len(text) - 1, len(text) * room // cost))]
        if (cost := count(text)) <= room:
            return text
    return None
