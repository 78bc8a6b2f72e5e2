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
from dataclasses import dataclass, replace
from typing import Any

FORGOTTEN = "audit.forgotten"
"""The event of a log's line that says which line, `before`, is the first that was kept."""

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
        is_behind_end = last.get("step") == "end"
        problem, record = _check_link(line, None if is_behind_end else previous, is_behind_end=is_behind_end)
        if not problem and (count == 1) != (record.get("step") == "begin"):
            problem = "is not where an export begins"
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


@dataclass(frozen=True, slots=True)
class LogReport:
    lines: int = 0
    """Lines that are as they were written."""
    first_seq: int = 0
    last_seq: int = 0
    last_hash: str = FIRST
    problem: str = ""
    """What is wrong with the first line behind them; empty: nothing."""


class LogVerifier:
    """Checks the lines of a log, which number themselves by `seq`, from 1, as they come.

    A log may begin later where a line of it, audit.forgotten, says that lines before were forgotten, or as a part.
    """

    def __init__(self, head: tuple[int, str] | None = None, *, is_part: bool = False) -> None:
        """`head` is number and hash of a line that the log has to reach."""
        self._report = LogReport()
        self._is_part = is_part
        self._head = head
        self._has_head = head is None or head[0] == 0
        self._forgotten_before = 1

    def add_lines(self, lines: Iterable[str]) -> None:
        for line in lines:
            if self._report.problem:
                return
            self._add_line(line)

    def finish(self) -> LogReport:
        report = self._report
        if report.problem:
            return report
        if report.lines and not self._is_part and report.first_seq > self._forgotten_before:
            return replace(report, problem=f"the lines before number {report.first_seq} are missing")
        if not self._has_head and self._head is not None:
            missing = f"the lines behind number {report.last_seq} are missing: there were {self._head[0]}"
            other = f"line number {self._head[0]} is another one than was written"
            return replace(report, problem=missing if report.last_seq < self._head[0] else other)
        return report

    def _add_line(self, line: str) -> None:
        report = self._report
        problem, record = _check_link(line, report.last_hash if report.lines else None)
        seq = record.get("seq", 0)
        if not problem and (type(seq) is not int or (report.lines and seq != report.last_seq + 1)):
            problem = f"is not number {report.last_seq + 1}"
        before = record.get("before", 0) if record.get("event") == FORGOTTEN else 0
        if not problem and type(before) is not int:
            problem = "forgets up to no number"
        if problem:
            place = f"line {report.lines + 1}, behind number {report.last_seq},"
            self._report = replace(report, problem=f"{place} {problem}")
            return
        self._report = LogReport(report.lines + 1, report.first_seq or seq, seq, record["hash"])
        self._has_head = self._has_head or (seq, record["hash"]) == self._head
        self._forgotten_before = max(self._forgotten_before, before)


def _check_link(line: str, previous: str | None, *, is_behind_end: bool = False) -> tuple[str, dict[str, Any]]:
    """Return what is wrong with a line behind the one with the hash `previous`, None: any, and the line's record."""
    try:
        record = json.loads(line, object_pairs_hook=_build_object)
        rest = {key: value for key, value in record.items() if key not in ("previous", "hash")}
        own, before = record["hash"], record["previous"]
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
        return "is no line of an export", {}
    if is_behind_end:
        return "is behind the end", {}
    if own != _hash(before, rest):
        return "was changed", {}
    if previous is not None and before != previous:
        return "does not follow the line before: lines were removed, added or swapped", {}
    return "", record


def _build_object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; raises ValueError for one that has a name twice, of which readers see one or the other."""
    if len(built := dict(members)) != len(members):
        raise ValueError("a name stands there twice")
    return built


def _hash(previous: str, record: dict[str, Any]) -> str:
    canonical = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256((str(previous) + canonical).encode("utf-8", "surrogatepass")).hexdigest()
