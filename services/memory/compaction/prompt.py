"""The prompt for a summary, the checks of the answer, and the message that holds the summary."""

from __future__ import annotations

import re
import unicodedata
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from headrace.v1 import memory_pb2
from services.memory.compaction.transcript import share_room
from services.runtime.formats.own_tags import neutralise_tag

FILES_MAX = 5
FILE_LINES_MAX = 1000

FILES_RATIO = 0.1
"""Maximum share of the limit for all files together."""


def format_file(file: memory_pb2.ContextFile) -> str:
    parts = [f"[File: {file.path}]", *([file.text] if file.text else [])]
    if file.lines_omitted:
        start = file.text.count("\n") + 2 if file.text else 1
        parts.append(f"[{file.lines_omitted:,} more lines: read_file with firstLine {start} shows them]")
    return "\n".join(parts)


def fit_files(
    files: Iterable[memory_pb2.ContextFile], room: int, count: Callable[[str], int]
) -> list[memory_pb2.ContextFile]:
    """Fit the first files into `room` tokens: small ones whole, of the others as many first lines as their share
    allows.

    An unused part of a file's share goes to the next file. A file is left out only if its share cannot even hold its
    name.
    """
    limited = [_cut_file(file, FILE_LINES_MAX) for file in islice(files, FILES_MAX)]
    costs = [count(format_file(file)) for file in limited]
    most, left = share_room(costs, room), 0
    fitted: list[memory_pb2.ContextFile] = []
    for file, cost in zip(limited, costs, strict=True):
        left += min(cost, most)
        if cost > left:
            sizes = range(file.text.count("\n") + 1)
            lines = bisect_right(sizes, left, key=lambda lines, file=file: count(format_file(_cut_file(file, lines))))
            if not lines:
                continue
            file = _cut_file(file, lines - 1)
        fitted.append(file)
        left -= count(format_file(file))
    return fitted


def _cut_file(file: memory_pb2.ContextFile, lines_max: int) -> memory_pb2.ContextFile:
    lines = file.text.split("\n")
    if len(lines) <= lines_max:
        return file
    omitted = file.lines_omitted + len(lines) - lines_max
    return memory_pb2.ContextFile(path=file.path, text="\n".join(lines[:lines_max]), lines_omitted=omitted)


SECTIONS = (
    *("Primary request and intent", "Key concepts", "Files and code", "Errors and fixes", "Problem solving"),
    *("All user messages", "Pending tasks", "Current work", "Next step"),
)

EMPTY = "EMPTY_SUMMARY"
CUT = "CUT_SUMMARY"
INCOMPLETE = "INCOMPLETE_SUMMARY"
REPEATED = "REPEATED_SUMMARY"

FAULTS = frozenset({EMPTY, CUT, INCOMPLETE, REPEATED})
"""Faults of an answer for which the model is asked again."""

REPEATED_RATIO = 0.1
"""Ratio of compressed to plain size below which a text repeats itself; prose and code have 0.25 or more."""

REPEATED_BYTES_MIN = 2000
"""Minimum size for this check; for shorter texts the ratio is meaningless."""

_HEADING = re.compile(
    r"^[ \t\u3000#*_>-]*(?:Section |第)?(\d|[一二三四五六七八九])[節节]?[ \t*_]*(?:[.):、．：\\]|[-–—] )", re.MULTILINE
)
"""A section's number, in any language, script or style of heading."""


def _read_number(heading: re.Match[str]) -> int:
    return int(unicodedata.numeric(heading[1]))


def find_fault(text: str, finish: str) -> str:
    """Return the reason why `text` is not a summary, one of FAULTS; empty if it is."""
    if finish in ("length", ""):
        return CUT
    if not text:
        return EMPTY
    if finish not in ("stop", "tool_calls") or list_missing_sections(text):  # a call after a summary is not run
        return INCOMPLETE
    data = text.encode()
    is_repeated = len(data) >= REPEATED_BYTES_MIN and len(zlib.compress(data)) < REPEATED_RATIO * len(data)
    return REPEATED if is_repeated else ""


def list_missing_sections(text: str) -> list[int]:
    """List the numbers of sections missing from the sequence."""
    numbers = [_read_number(match) for match in _HEADING.finditer(text)]
    missing: list[int] = []
    for section in range(1, len(SECTIONS) + 1):
        if section in numbers:
            numbers = numbers[numbers.index(section) + 1 :]
        else:
            missing.append(section)
    return missing


def split_sections(text: str) -> list[tuple[str, str]]:
    """Split a summary into the text before its sections, under an empty name, and its sections by name.

    A number may also begin a list item: a place followed by the section's name is preferred, else the first in order.
    """
    begins = [0]
    names = [""]
    for number, name in enumerate(SECTIONS, 1):
        places = [
            match.start()
            for match in _HEADING.finditer(text, begins[-1] + 1 if names[-1] else 0)
            if _read_number(match) == number
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
    """Describe to the model the fault of its answer."""
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


INSTRUCTION = """\
The conversation is about to be compacted: you will continue from your summary, without what it replaces. Do not \
answer the user and do not call tools now.

First think about the conversation in chronological order between <analysis> and </analysis>: what was asked, what \
was done, what came out of it. Then write the summary between <summary> and </summary>, in the language of the \
conversation, with these nine sections, each with its number; one with nothing to say says none:

1. Primary request and intent: what the user wants, in full detail.
2. Key concepts: technologies, terms and decisions that matter.
3. Files and code: each file that was read, made or changed, why it matters, and the code that is still needed.
4. Errors and fixes: what went wrong, how it was solved, what the user said about it.
5. Problem solving: what is solved, and what is being looked into.
6. All user messages: every message of the user that is no tool result, shortened only where it is long.
7. Pending tasks: what was asked for and is not done.
8. Current work: what was being done right before this request, with names and figures.
9. Next step: what follows directly from the last request, quoting it; none when the work was finished.

Keep ids, paths, figures and names exactly as they are."""

_FORM = (
    "Write it between <summary> and </summary>, in the language of the conversation, with these nine sections, each "
    "with its number; one with nothing to say says none: "
    + "; ".join(f"{number}. {name}" for number, name in enumerate(SECTIONS, 1))
    + ". Keep ids, paths, figures and names exactly as they are."
)

PART = (
    "The conversation is about to be compacted. Summarise this part of it, lines {first} to {last} of its log; answer "
    f"nobody in it. {_FORM}"
)

PARTS = (
    "The conversation is about to be compacted. These are summaries of its parts, each with its lines of the log. "
    f"Write one summary of all of them, lines {{first}} to {{last}}, and lose nothing that later work may need. {_FORM}"
)

INSTRUCTIONS = "Whoever made this agent wants every summary to heed this:"

HINT = "The user who asked for the compaction wants the summary to heed this:"

FILES = "These files of the workspace were mentioned, as they are now:"

HEAD = (
    "The conversation was compacted. This summary stands for lines {first} to {last} of its log, which went before the "
    "messages that follow."
)

EDITED = "While this summary was written, the user changed the one before it to this:"

UNSEEN = "Whoever wrote the summary did not see all of these lines, which read_history shows: {lines}."

_ANSWER = re.compile(r"<summary>(.*)</summary>|<summary>(.*)\Z", re.DOTALL)
"""The summary in an answer: to the last end tag, because a summary may quote HTML's element of that name."""
_CONTENT = re.compile(r"<summary>(?:\n(.*?)\n</summary>(?=\n\n|\Z)|(.*?)(?:</summary>|\Z))", re.DOTALL)
"""The summary in a message by `build_content`: to the first end tag on a line of its own; in an edited message without
such a line, to the first end tag."""
_ANALYSIS = re.compile(r"<analysis>.*?(</analysis>|\Z)", re.DOTALL)


def build_wishes(request: memory_pb2.CompactRequest) -> list[str]:
    """Return the instructions for a summary from its agent's author and the user."""
    wishes = ((INSTRUCTIONS, request.summary_instructions), (HINT, request.hint))
    return [f"{head}\n\n{wish}" for head, wish in wishes if wish]


def build_instruction(files: Iterable[memory_pb2.ContextFile], wishes: Iterable[str]) -> str:
    blocks = [format_file(file) for file in files]
    return "\n\n".join([*([FILES, *blocks] if blocks else []), INSTRUCTION, *wishes])


def build_part_request(template: str, first: int, last: int, text: str, wishes: Iterable[str]) -> str:
    """Build a request for the summary of a part, or of several summaries, from `template`."""
    instruction = template.format(first=first, last=last)
    quoted = neutralise_tag(text, "conversation")
    return "\n\n".join([f"<conversation>\n{quoted}\n</conversation>", instruction, *wishes])


def build_content(
    summary: str,
    lines: tuple[int, int],
    unseen: Sequence[tuple[int, int]],
    facts: str,
    files: Iterable[memory_pb2.ContextFile],
) -> str:
    """Build the message that replaces `lines`; of these, `unseen` were not fully seen."""
    head = HEAD.format(first=lines[0], last=lines[1])
    note = UNSEEN.format(lines=format_lines(unseen)) if unseen else ""
    parts = [head, note, f"<summary>\n{summary}\n</summary>", facts, *map(format_file, files)]
    return "\n\n".join(part for part in parts if part)


def format_lines(ranges: Iterable[tuple[int, int]]) -> str:
    return ", ".join(f"{first}-{last}" if last > first else str(first) for first, last in ranges)


def split_content(content: str) -> tuple[str, str, str]:
    """Split a message by `build_content`, possibly edited, into the text before, inside and after the summary's tags.

    Without tags all of it is the summary.
    """
    match = _CONTENT.search(content)
    if match is None:
        return "", content.strip(), ""
    summary = match[1] if match[1] is not None else match[2]
    return content[: match.start()].strip(), summary.strip(), content[match.end() :].strip()


def extract_summary(answer: str) -> str:
    """Return the summary in an answer; without tags, everything except the analysis; empty if there is none."""
    analysis = _ANALYSIS.search(answer)
    if analysis is not None and analysis[1]:  # it may name the tags
        answer = answer[: analysis.start()] + answer[analysis.end() :]
    match = _ANSWER.search(answer)
    if match is None:
        return _ANALYSIS.sub("", answer).strip()
    return (match[1] if match[1] is not None else match[2]).strip()
