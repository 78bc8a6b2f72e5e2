"""Recognizes causes that the status does not show, in vendors' messages, by the rows of vendor_words.toml."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import BY_REASON, HeadraceError


@dataclass(frozen=True, slots=True)
class Row:
    vendor: str
    means: type[HeadraceError]
    pattern: re.Pattern[str]
    example: str
    source: str
    date: str

    account_is_empty: bool
    """Whether another account of the vendor may work."""


def _load_rows() -> tuple[Row, ...]:
    text = Path(__file__).with_name("vendor_words.toml").read_text()
    return tuple(
        Row(
            row["vendor"],
            BY_REASON[row["means"]],
            re.compile(row["pattern"], re.IGNORECASE),
            row["example"],
            row["source"],
            row["date"],
            row.get("account_is_empty", False),
        )
        for row in tomllib.loads(text)["row"]
    )


ROWS = _load_rows()

_LIMIT = re.compile(
    r"(?:maximum (?:context|prompt|allowed input) length(?: is| of)?|max_seq_len|tokens allowed|token limit:?"
    r"|only supports up to"
    r"|context (?:size|length|window)(?: of)?|limit of)\s*\(?(?P<named>\d{3,12})"
    r"|(?P<before>\d{3,12}) maximum context|> (?P<compared>\d{3,12})|\[\d+, (?P<range>\d{3,12})\]",
    re.IGNORECASE,
)
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3})")
_NUMBER = re.compile(r"\d{3,12}")

_WAIT = re.compile(
    r"(?:try again|retry) (?:in|after) (?:(\d{1,3})h)?(?:(\d{1,4})m(?!s))?(?:(\d{1,6}(?:\.\d{1,9})?) ?(ms|s))?",
    re.IGNORECASE,
)


def find_row(words: str) -> Row | None:
    return next((row for row in ROWS if row.pattern.search(words)), None)


def parse_wait_s(message: str) -> float | None:
    """Return the wait that a message names, as in "try again in 6m0.5s", "in 28ms" or "after 12 seconds"."""
    match = _WAIT.search(message)
    if match is None or not any(match.groups()):
        return None
    hours, minutes, seconds, unit = match.groups()
    scale = 1000 if (unit or "").lower() == "ms" else 1
    return int(hours or 0) * 3600 + int(minutes or 0) * 60 + float(seconds or 0) / scale


def parse_window_tokens(message: str) -> dict[str, str]:
    message = _THOUSANDS.sub("", message)
    match = _LIMIT.search(message)
    if match is None:
        return {}
    limit = int(match[match.lastgroup or 0])
    others = {int(number) for number in _NUMBER.findall(message)} - {limit}
    # The whole request is larger than the window. If no single number is, they are its parts, as in Anthropic's "197202
    # + 21333 > 200000".
    current = max(others, default=0) if max(others, default=0) > limit else sum(others)
    return {"maxTokens": str(limit)} | ({"currentTokens": str(current)} if current > limit else {})
