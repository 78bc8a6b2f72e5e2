"""Creates a report file from Markdown that the model writes."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

from headrace.v1 import tools_pb2
from services.runtime.formats.own_tags import strip_fence
from services.tools.documents.file_types import SUFFIXES, RenderedFile, render_file
from services.tools.documents.report import PLACEABLE
from services.tools.errors import ToolFailed
from services.tools.toolkit.model_client import ModelClient, ModelFailed
from services.tools.toolkit.tool import Tool, ToolContext, describe_parameters, make_output, make_result
from services.tools.workspace.file_work import run_in_thread
from services.tools.workspace.workspace import Workspace

TASK_CHARS_MAX = 50_000

TEXT_CHARS_MAX = 200_000
"""A PDF of this many characters takes about 7 s of CPU."""

PARAMETERS = describe_parameters(
    {
        "task": {
            "type": "string",
            "minLength": 1,
            "maxLength": TASK_CHARS_MAX,
            "description": "What the report is about and all the facts it needs: its writer knows nothing else",
        },
        "fileType": {"type": "string", "enum": [*SUFFIXES], "description": "Kind of the file"},
    },
    "task",
    "fileType",
)

SYSTEM = (
    "You write a report in Markdown, in the language of the task: a title as the one first-level heading, second-level "
    "headings, short paragraphs, lists and tables. Give the report alone, without remarks about it, not in a code "
    "block. Use only facts that the task gives. A picture of the chat is placed by ![caption](its path) in a paragraph "
    "of its own, and a CSV file, as a table, in the same way."
)

SLIDES = " It becomes slides: under each second-level heading a few list items, each of one line, a table or a picture."

PLACEABLE_MAX, LISTED_MAX = 50, 2000
"""Maximum files offered to the writer, the newest of those examined, and maximum files examined."""

UNPLACED_SHOWN_MAX = 10


async def execute(context: ToolContext) -> AsyncGenerator[tools_pb2.ToolDelta]:
    kind, model, pieces = context.arguments["fileType"], ModelClient(context), list[str]()
    try:
        files = await run_in_thread("outputs", lambda: _list_placeable(context.open_workspace()))
        async with aclosing(_write_report(context, model, files)) as texts:
            async for text in texts:
                pieces.append(text)
                yield make_output("text", text)
        # A repeated call has the same path, so that it replaces its own file.
        subject = "-".join(re.findall(r"\w+", context.arguments["task"].lower()))[:40].strip("-_") or "report"
        key = context.request.effect_key or f"{context.request.run_id}/{context.request.tool_call_id}"
        digest = hashlib.sha256(key.encode()).hexdigest()[:6]
        path = f"outputs/{subject}-{digest}.{SUFFIXES[kind]}"
        file = await _save_report(context, kind, "".join(pieces), path)
    except ToolFailed as failure:
        outcome = make_result("\n\n".join([f"no file was made: {failure}", "".join(pieces)]).rstrip(), ok=False)
    else:
        cut = "; its text was cut: the answer had its greatest length" if model.is_cut else ""
        missing = f"; {file.missing_chars} characters are in no font and stand there as ?" if file.missing_chars else ""
        paths = ", ".join(map(repr, file.unplaced[:UNPLACED_SHOWN_MAX]))
        unplaced = f"; not placed, because they are no picture or CSV file of the chat: {paths}" if paths else ""
        outcome = make_result(f"wrote {path}{cut}{missing}{unplaced}")
    if model.usage.model_calls:
        yield model.make_usage()
    yield outcome


async def _write_report(context: ToolContext, model: ModelClient, files: list[str]) -> AsyncGenerator[str]:
    system = SYSTEM + (SLIDES if context.arguments["fileType"] == "ppt" else "")
    placeable = "\n".join(["\n\nFiles that can be placed:", *(f"- {file}" for file in files)]) if files else ""
    chars = 0
    async with aclosing(model.stream_answer(system, f"Task: {context.arguments['task']}{placeable}")) as texts:
        async for text in texts:
            chars += len(text)
            if chars > TEXT_CHARS_MAX:
                raise ModelFailed(f"the report grew over {TEXT_CHARS_MAX} characters")
            yield text


def _list_placeable(workspace: Workspace) -> list[str]:
    """Return the chat's pictures and tables, newest first."""

    def is_placeable(path: str) -> bool:
        # A name that is not valid text, which Python holds with lone surrogates, cannot be sent to a model.
        return path.lower().endswith(PLACEABLE) and not any("\ud800" <= letter <= "\udfff" for letter in path)

    with suppress(FileNotFoundError):
        found = workspace.list_files("outputs", LISTED_MAX, matches=is_placeable)
        newest = sorted(found, key=lambda file: file.modified_ns, reverse=True)
        return [file.path for file in newest[:PLACEABLE_MAX]]
    return []


async def _save_report(context: ToolContext, kind: str, text: str, path: str) -> RenderedFile:
    if "\n```" not in (block := strip_fence(text)):
        text = block  # some models put the whole report into a code block
    if not text.strip():
        raise ModelFailed("the model wrote nothing")
    workspace = await run_in_thread(path, context.open_workspace)
    file = await render_file(text, kind, lambda placed, bytes_max: _read_placed(workspace, placed, bytes_max))
    await run_in_thread(path, lambda: workspace.write_file(path, file.data))
    return file


def _read_placed(workspace: Workspace, path: str, bytes_max: int) -> bytes | None:
    with suppress(OSError, ValueError), workspace.open_file(path) as fd:
        if os.fstat(fd).st_size <= bytes_max:
            with open(fd, "rb", closefd=False) as file:
                return file.read(bytes_max)
    return None


REPORT = Tool(
    name="report",
    description=(
        "Have a report written and made into a file for the user in outputs/: a web page, Markdown, slides or a PDF. "
        "Give all the facts in the task, and name the charts and CSV files of the chat that it is to show."
    ),
    parameters=PARAMETERS,
    effect="idempotent",
    execute=execute,
    tier="enabled",
    needs=frozenset({"model"}),
)
