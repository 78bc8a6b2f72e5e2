from __future__ import annotations

import re
from typing import TYPE_CHECKING

from services.memory.compaction.context_files import format_file

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.v1 import memory_pb2

INSTRUCTION = """\
The conversation is about to be compacted: you will go on from your summary, without what it replaces. Do not answer \
the user and do not call tools now.

First think about the conversation in chronological order between <analysis> and </analysis>: what was asked, what \
was done, what came out of it. Then write the summary between <summary> and </summary>, in the language of the \
conversation, with these sections:

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

HINT = "The user who asked for the compaction wants the summary to heed this:"

FILES = "These files of the workspace were mentioned, as they are now:"

HEAD = "The conversation was compacted. This summary stands for what went before the messages that follow."

_SUMMARY = re.compile(r"<summary>(.*?)(?:</summary>|\Z)", re.DOTALL)
_ANALYSIS = re.compile(r"<analysis>.*?(?:</analysis>|\Z)", re.DOTALL)


def build_instruction(files: Iterable[memory_pb2.ContextFile], hint: str) -> str:
    blocks = [format_file(file) for file in files]
    return "\n\n".join([*([FILES, *blocks] if blocks else []), INSTRUCTION, *([HINT, hint] if hint else [])])


def build_content(summary: str, pins: str, files: Iterable[memory_pb2.ContextFile]) -> str:
    parts = [HEAD, f"<summary>\n{summary}\n</summary>", pins, *map(format_file, files)]
    return "\n\n".join(part for part in parts if part)


def extract_summary(answer: str) -> str:
    """Return the summary in an answer: without tags all but the analysis; empty if there is none."""
    found = _SUMMARY.search(answer)
    return (found[1] if found else _ANALYSIS.sub("", answer)).strip()
