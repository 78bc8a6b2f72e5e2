"""Tampering with the lines of an export is detected, and the first changed line is named."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from headrace.hash_chain import FIRST, FORGOTTEN, LogVerifier, chain_line, verify_lines

STEPS: list[dict[str, Any]] = [
    {"step": "begin", "format": "headrace.gates/1"},
    {"step": "asked", "at": 1, "answerers": {"notRequester": True, "anyOf": ["role:é", "user:ada"]}},
    {"step": "answered", "at": 2, "by": "bob"},
    {"step": "used", "at": 3},
    {"step": "end", "count": 3},
]


def write(records: list[dict[str, Any]], previous: str = FIRST) -> list[str]:
    lines: list[str] = []
    for seq, record in enumerate(records):
        line, previous = chain_line(previous, {"seq": seq} | record)
        lines.append(line)
    return lines


def replace_by(lines: list[str]) -> list[str]:
    return [line.replace('"bob"', '"eve"') for line in lines]


def rewrite_one(lines: list[str]) -> list[str]:
    """Change a line and recompute its hash."""
    record = json.loads(lines[2]) | {"by": "eve"}
    previous = record.pop("previous")
    del record["hash"]
    return [*lines[:2], chain_line(previous, record)[0], *lines[3:]]


DONE: dict[str, tuple[Callable[[list[str]], list[str]], int, str]] = {
    "changed": (replace_by, 3, "was changed"),
    "changed, with its own hash": (rewrite_one, 4, "does not follow"),
    "removed": (lambda lines: [*lines[:2], *lines[3:]], 3, "does not follow"),
    "swapped": (lambda lines: [lines[0], lines[2], lines[1], *lines[3:]], 2, "does not follow"),
    "the first removed": (lambda lines: lines[1:], 1, "does not follow"),
    "the last removed": (lambda lines: lines[:-1], 5, "is missing: the file is cut"),
    "all removed": (lambda lines: [], 1, "is missing"),
    "added": (lambda lines: [*lines, lines[-1]], 6, "comes after the end"),
    "said twice": (
        lambda lines: [line.replace('"by"', '"by": "eve", "by"') for line in lines],
        3,
        "is no line of an export",
    ),
    "said twice, deeper": (
        lambda lines: [line.replace('"anyOf"', '"anyOf": ["tenant"], "anyOf"') for line in lines],
        2,
        "is no line of an export",
    ),
    "no JSON": (lambda lines: [lines[0], "{", *lines[2:]], 2, "is no line of an export"),
    "no object": (lambda lines: [lines[0], "[]", *lines[2:]], 2, "is no line of an export"),
    "no text as a hash": (lambda lines: [lines[0], '{"hash": 1, "previous": []}', *lines[2:]], 2, "was changed"),
    "rewritten without one": (lambda lines: write([*STEPS[:2], *STEPS[3:]]), 4, "counts 3 steps, and there are 2"),
    "rewritten without a begin": (lambda lines: write(STEPS[1:]), 1, "is not where an export begins"),
    "two in one": (lambda lines: [*lines[:3], *write(STEPS, json.loads(lines[2])["hash"])], 4, "is not where"),
}


@pytest.mark.parametrize("case", DONE)
def test_the_first_tampered_line_is_named(case: str) -> None:
    lines = write(STEPS)
    assert not verify_lines(lines).problem
    change, number, problem = DONE[case]
    report = verify_lines(change(lines))
    assert report.problem.startswith(f"line {number} {problem}"), report.problem


def test_only_the_canonical_form_counts() -> None:
    lines = write(STEPS)
    written = [json.dumps(dict(reversed(json.loads(line).items())), indent=1, ensure_ascii=True) for line in lines]
    report = verify_lines(written)
    assert (report.problem, report.lines, report.last_hash) == ("", 5, json.loads(lines[-1])["hash"])


def test_a_log_line_that_forgets_up_to_no_number_is_reported() -> None:
    verifier = LogVerifier()
    verifier.add_lines([chain_line(FIRST, {"seq": 1, "event": FORGOTTEN, "before": "x"})[0]])
    assert verifier.finish().problem == "line 1, after number 0, forgets up to no number"
