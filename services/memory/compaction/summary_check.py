"""Tells a summary from any other text that a model may answer with."""

from __future__ import annotations

import re
import zlib

SECTIONS = (
    *("Primary request and intent", "Key concepts", "Files and code", "Errors and fixes", "Problem solving"),
    *("All user messages", "Pending tasks", "Current work", "Next step"),
)

EMPTY = "EMPTY_SUMMARY"
CUT = "CUT_SUMMARY"
INCOMPLETE = "INCOMPLETE_SUMMARY"
REPEATED = "REPEATED_SUMMARY"

FAULTS = frozenset({EMPTY, CUT, INCOMPLETE, REPEATED})
"""Faults of an answer, for which a model is asked once more."""

REPEATED_RATIO = 0.1
"""Compressed size of a text that goes in circles, by its own; that of prose and of code is 0.25 and more."""

REPEATED_BYTES_MIN = 2000
"""Size of a shorter text says nothing about it."""

_HEADING = re.compile(r"^[ \t\u3000#*_>]*([1-9])[ \t*_]*[.):、．：]", re.MULTILINE)
"""A section's number, whatever the language and the form of its name."""


def find_fault(text: str, finish: str) -> str:
    """Return the reason why `text` is no summary, of FAULTS; empty if it is one."""
    if finish in ("length", ""):
        return CUT
    if not text:
        return EMPTY
    if finish != "stop" or list_missing_sections(text):
        return INCOMPLETE
    data = text.encode()
    is_repeated = len(data) >= REPEATED_BYTES_MIN and len(zlib.compress(data)) < REPEATED_RATIO * len(data)
    return REPEATED if is_repeated else ""


def list_missing_sections(text: str) -> list[int]:
    """List the numbers of sections that do not follow in order."""
    numbers = [int(match[1]) for match in _HEADING.finditer(text)]
    missing: list[int] = []
    for section in range(1, len(SECTIONS) + 1):
        if section in numbers:
            numbers = numbers[numbers.index(section) + 1 :]
        else:
            missing.append(section)
    return missing


def split_sections(text: str) -> list[tuple[str, str]]:
    """Split a summary into what stands before its sections, without a name, and its sections by their names here.

    A number may also begin an item of a list: a place with the section's name is its own, else the first in order.
    """
    begins = [0]
    names = [""]
    for number, name in enumerate(SECTIONS, 1):
        places = [
            match.start()
            for match in _HEADING.finditer(text, begins[-1] + 1 if names[-1] else 0)
            if int(match[1]) == number
        ]
        named = [at for at in places if name.casefold() in text[at:].lstrip().partition("\n")[0].casefold()]
        if places:
            begins.append((named or places)[0])
            names.append(name)
    return [
        (name, text[first:last].strip())
        for name, first, last in zip(names, begins, [*begins[1:], len(text)], strict=True)
    ]


def describe_fault(fault: str, text: str) -> str:
    """Tell a model what was wrong with its answer."""
    match fault:
        case "CUT_SUMMARY":
            wrong = "was cut off before its end: be shorter"
        case "EMPTY_SUMMARY":
            wrong = "was empty"
        case "REPEATED_SUMMARY":
            wrong = "repeated itself: say each thing once"
        case _:
            wrong = f"lacked the sections {', '.join(map(str, list_missing_sections(text)))}"
    return (
        f"You have been asked this before, and your answer {wrong}. Nothing but the summary with all nine numbered "
        "sections, 1. to 9., can be used; a section with nothing to say says none."
    )
