from __future__ import annotations

import re
from typing import TYPE_CHECKING

from services.memory.compaction.context_files import format_file
from services.memory.compaction.summary_check import SECTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headrace.v1 import memory_pb2

INSTRUCTION = """\
The conversation is about to be compacted: you will go on from your summary, without what it replaces. Do not answer \
the user and do not call tools now.

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

_SUMMARY = re.compile(r"<summary>(.*?)(?:</summary>|\Z)", re.DOTALL)
_ANALYSIS = re.compile(r"<analysis>.*?(?:</analysis>|\Z)", re.DOTALL)


def build_wishes(request: memory_pb2.CompactRequest) -> list[str]:
    """Build what a summary is to heed, by its agent's author and by the user."""
    wishes = ((INSTRUCTIONS, request.summary_instructions), (HINT, request.hint))
    return [f"{head}\n\n{wish}" for head, wish in wishes if wish]


def build_instruction(files: Iterable[memory_pb2.ContextFile], wishes: Iterable[str]) -> str:
    blocks = [format_file(file) for file in files]
    return "\n\n".join([*([FILES, *blocks] if blocks else []), INSTRUCTION, *wishes])


def build_part_request(template: str, first: int, last: int, text: str, wishes: Iterable[str]) -> str:
    """Build a request for the summary of a part, or of the summaries of parts, by `template`."""
    instruction = template.format(first=first, last=last)
    return "\n\n".join([f"<conversation>\n{text}\n</conversation>", instruction, *wishes])


def build_content(
    summary: str,
    lines: tuple[int, int],
    unseen: Sequence[tuple[int, int]],
    facts: str,
    files: Iterable[memory_pb2.ContextFile],
) -> str:
    """Build the message that stands for `lines`, of which `unseen` were not all seen."""
    head = HEAD.format(first=lines[0], last=lines[1])
    note = UNSEEN.format(lines=format_lines(unseen)) if unseen else ""
    parts = [head, note, f"<summary>\n{summary}\n</summary>", facts, *map(format_file, files)]
    return "\n\n".join(part for part in parts if part)


def format_lines(ranges: Iterable[tuple[int, int]]) -> str:
    return ", ".join(f"{first}-{last}" if last > first else str(first) for first, last in ranges)


def split_content(content: str) -> tuple[str, str, str]:
    """Split what `build_content` has built, or a person has made of it: before, in and behind the summary's tags.

    Without tags all of it is the summary.
    """
    found = _SUMMARY.search(content)
    if found is None:
        return "", content.strip(), ""
    return content[: found.start()].strip(), found[1].strip(), content[found.end() :].strip()


def extract_summary(answer: str) -> str:
    """Return the summary in an answer: without tags all but the analysis; empty if there is none."""
    found = _SUMMARY.search(answer)
    return (found[1] if found else _ANALYSIS.sub("", answer)).strip()
