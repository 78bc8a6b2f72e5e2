"""Recognizes causes that the status does not show, in vendors' messages, by the rows of vendor_words.toml."""

from __future__ import annotations

import re
import tomllib
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

from headrace.errors import BY_REASON, HeadraceError
from services.runtime.clock import now_s


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
    r"|only supports up to|limit(?= \d{1,12}, requested)|max size:"
    r"|context (?:size|length|window)(?: of)?(?: only)?|limit of)\s*\(?(?P<named>\d{3,12})"
    r"|(?P<before>\d{3,12}) maximum context|> (?P<compared>\d{3,12})|\[\d+, (?P<range>\d{3,12})\]",
    re.IGNORECASE,
)
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3})")
_NUMBER = re.compile(r"\d{3,12}")

_WAIT = re.compile(
    r"(?:(?:try again|retry) (?:in|after)|wait(?: for)?) (?:(\d{1,3}) ?h(?:ours?)?,? ?)?"
    r"(?:(?:and )?(\d{1,4}) ?m(?!s)(?:in(?:ute)?s?)?,? ?)?(?:(?:and )?(\d{1,6}(?:\.\d{1,9})?) ?(ms|s))?",
    re.IGNORECASE,
)


_DURATION = re.compile(r"(?:(\d{1,4})h)?(?:(\d{1,5})m(?!s))?(?:(\d{1,13}(?:\.\d{1,9})?)(ms|s)?)?")

UNIX_S_MIN = 10**9
"""A larger number of seconds is a time since 1970."""


def find_row(words: str) -> Row | None:
    return next((row for row in ROWS if row.pattern.search(words)), None)


def parse_wait_s(message: str) -> float | None:
    """Return the wait that a message names, as in "try again in 6m0.5s", "in 28ms" or "after 12 seconds"."""
    match = _WAIT.search(message)
    return None if match is None else _read_duration_s(match)


def parse_time_s(text: str) -> float | None:
    """Return the seconds until a time.

    It is a duration such as "7", "1500ms" or "6m0s", a date of HTTP or ISO 8601, or a number of seconds or milliseconds
    since 1970.
    """
    if (match := _DURATION.fullmatch(text)) is not None:
        duration_s = _read_duration_s(match)
        if duration_s is None or duration_s < UNIX_S_MIN:
            return duration_s
        return max(duration_s / (1000 if duration_s >= UNIX_S_MIN * 100 else 1) - now_s(), 0.0)
    for parse in (parsedate_to_datetime, datetime.fromisoformat):
        with suppress(ValueError, OverflowError):
            return max(parse(text).timestamp() - now_s(), 0.0)
    return None


def _read_duration_s(match: re.Match[str]) -> float | None:
    hours, minutes, seconds, unit = match.groups()
    if not (hours or minutes or seconds):
        return None
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
