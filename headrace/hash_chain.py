"""Hash-chained lines of JSON: a changed, removed or moved line is detected.

Each line is an object with `previous`, the hash of the line before (64 zeros for the first), and `hash`:
SHA-256 of `previous` and the canonical JSON of the rest of the object, in hexadecimal. Canonical JSON has
sorted keys, no white space, and UTF-8 without unnecessary escapes. The chain contains no secret: an attacker
who rewrites all lines from some point on gets a valid file with another last hash.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

FORGOTTEN = "audit.forgotten"
"""Event of the log line that names the first kept line in `before`."""

FIRST = "0" * 64
"""Placeholder for the hash before the first line."""


def chain_line(previous: str, record: dict[str, Any]) -> tuple[str, str]:
    """Return the line of a record that follows the line with the hash `previous`, and its own hash.

    The record may contain text and integers.
    """
    own = _hash(previous, record)
    return json.dumps({**record, "previous": previous, "hash": own}, ensure_ascii=False), own


@dataclass(frozen=True, slots=True)
class ChainReport:
    lines: int
    """Number of unchanged lines."""
    last_hash: str
    problem: str = ""
    """Problem of the first wrong line after them; empty if the file is complete and unchanged."""


def verify_lines(lines: Iterable[str]) -> ChainReport:
    """Verify the lines of an export; the first line must begin it, and the last one, `end`, must count its steps."""
    count, previous, last = 0, FIRST, dict[str, Any]()
    for count, line in enumerate(lines, 1):
        is_after_end = last.get("step") == "end"
        problem, record = _check_link(line, None if is_after_end else previous, is_after_end=is_after_end)
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
    """Number of unchanged lines."""
    first_seq: int = 0
    last_seq: int = 0
    last_hash: str = FIRST
    problem: str = ""
    """Problem of the first wrong line after them; empty if there is none."""


class LogVerifier:
    """Verifies the lines of a log as they are read; lines are numbered by `seq`, from 1.

    A log may start later if it is a part, or if one of its lines, audit.forgotten, states that earlier lines
    were forgotten.
    """

    def __init__(self, head: tuple[int, str] | None = None, *, is_part: bool = False) -> None:
        """`head` is number and hash of a line that the log must contain."""
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
            missing = f"the lines after number {report.last_seq} are missing: there were {self._head[0]}"
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
            place = f"line {report.lines + 1}, after number {report.last_seq},"
            self._report = replace(report, problem=f"{place} {problem}")
            return
        self._report = LogReport(report.lines + 1, report.first_seq or seq, seq, record["hash"])
        self._has_head = self._has_head or (seq, record["hash"]) == self._head
        self._forgotten_before = max(self._forgotten_before, before)


def _check_link(line: str, previous: str | None, *, is_after_end: bool = False) -> tuple[str, dict[str, Any]]:
    """Return the problem of a line, empty if there is none, and its record.

    `previous` is the expected hash of the line before; None accepts any.
    """
    try:
        record = json.loads(line, object_pairs_hook=_build_object)
        rest = {key: value for key, value in record.items() if key not in ("previous", "hash")}
        own, before = record["hash"], record["previous"]
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
        return "is no line of an export", {}
    if is_after_end:
        return "comes after the end", {}
    if own != _hash(before, rest):
        return "was changed", {}
    if previous is not None and before != previous:
        return "does not follow the line before: lines were removed, added or swapped", {}
    return "", record


def _build_object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; ValueError if it has a duplicate name, because readers differ in which value they see."""
    if len(built := dict(members)) != len(members):
        raise ValueError("a name appears twice")
    return built


def _hash(previous: str, record: dict[str, Any]) -> str:
    canonical = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256((str(previous) + canonical).encode("utf-8", "surrogatepass")).hexdigest()
