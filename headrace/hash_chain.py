"""Lines of JSON in a hash chain: a line that is changed, taken out or put elsewhere is found.

Each line is an object with `previous`, the hash of the line before (of the first: 64 zeros), and `hash`: SHA-256 of
`previous` and the canonical JSON of the rest of the object, in hexadecimal digits. Canonical is: keys in order, no
white space, UTF-8 without escapes that are not needed. There is no secret in it: who rewrites all lines from one on has
a valid file again, with another last hash.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

FIRST = "0" * 64
"""What stands for the hash before the first line."""


def chain_line(previous: str, record: dict[str, Any]) -> tuple[str, str]:
    """Return the line of a record, of text and integers, behind the line with the hash `previous`; and its own hash."""
    own = _hash(previous, record)
    return json.dumps({**record, "previous": previous, "hash": own}, ensure_ascii=False), own


@dataclass(frozen=True, slots=True)
class ChainReport:
    lines: int
    """Lines that are as they were written."""
    last_hash: str
    problem: str = ""
    """What is wrong with the first line behind them; empty: nothing, and the file is whole."""


def verify_lines(lines: Iterable[str]) -> ChainReport:
    """Check the lines of an export, the first of which begins it and the last of which, `end`, counts its steps."""
    count, previous, last = 0, FIRST, dict[str, Any]()
    for count, line in enumerate(lines, 1):
        problem, record = _check_line(line, previous, is_first=count == 1, is_behind_end=last.get("step") == "end")
        if problem:
            return ChainReport(count - 1, previous, f"line {count} {problem}")
        previous, last = record["hash"], record
    if last.get("step") != "end":
        return ChainReport(count, previous, f"line {count + 1} is missing: the file is cut")
    if last.get("count") != count - 2:
        return ChainReport(
            count - 1, previous, f"line {count} counts {last.get('count')} steps, and there are {count - 2}"
        )
    return ChainReport(count, previous)


def _check_line(line: str, previous: str, *, is_first: bool, is_behind_end: bool) -> tuple[str, dict[str, Any]]:
    try:
        record = json.loads(line)
        rest = {key: value for key, value in record.items() if key not in ("previous", "hash")}
        own, before = record["hash"], record["previous"]
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
        return "is no line of an export", {}
    if is_behind_end:
        return "is behind the end", {}
    if own != _hash(before, rest):
        return "was changed", {}
    if before != previous:
        return "does not follow the line before: lines were removed, added or swapped", {}
    if is_first != (rest.get("step") == "begin"):
        return "is not where an export begins", {}
    return "", record


def _hash(previous: str, record: dict[str, Any]) -> str:
    canonical = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256((str(previous) + canonical).encode("utf-8", "surrogatepass")).hexdigest()
