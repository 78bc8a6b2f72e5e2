"""report: the model writes Markdown, streamed as it comes, and the file that was asked for is made from it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing

from headrace.v1 import tools_pb2
from services.tools.documents.file_types import FILE_TYPES, make_file
from services.tools.errors import ToolFailed
from services.tools.toolkit.file_work import in_thread
from services.tools.toolkit.model_client import Asker, ModelFailed
from services.tools.toolkit.tool import Call, Tool, output, result

TASK_CHARS_MAX = 50_000

TEXT_CHARS_MAX = 200_000
"""Of a report: making a PDF of that takes about 7 s of a core."""

PARAMETERS = {
    "type": "object",
    "properties": {
        "task": {
            "type": "string",
            "minLength": 1,
            "maxLength": TASK_CHARS_MAX,
            "description": "What the report is about and all the facts it needs: its writer knows nothing else",
        },
        "fileType": {"type": "string", "enum": [*FILE_TYPES], "description": "Kind of the file"},
    },
    "required": ["task", "fileType"],
    "additionalProperties": False,
}

SYSTEM = (
    "You write a report in Markdown, in the language of the task: a title as the one first-level heading, second-level "
    "headings, short paragraphs, lists and tables. Give the report alone, without remarks about it, not in a code "
    "block. Use only facts that the task gives."
)

SLIDES = " It becomes slides: under each second-level heading a few list items, each of one line."


async def execute(call: Call) -> AsyncGenerator[tools_pb2.ToolDelta]:
    kind, asker, said = call.arguments["fileType"], Asker(call), list[str]()
    try:
        async with aclosing(_written(call, asker)) as texts:
            async for text in texts:
                said.append(text)
                yield output("text", text)
        path = _path(call, FILE_TYPES[kind].suffix)
        missing = await _keep(call, kind, _unwrapped("".join(said)), path)
    except ToolFailed as failure:
        outcome = result("\n\n".join([f"no file was made: {failure}", "".join(said)]).rstrip(), ok=False)
    else:
        cut = "; its text was cut: the answer had its greatest length" if asker.is_cut else ""
        outcome = result(f"wrote {path}{cut}{_note(missing)}")
    if asker.usage.model_calls:
        yield asker.delta()
    yield outcome


async def _written(call: Call, asker: Asker) -> AsyncGenerator[str]:
    system = SYSTEM + (SLIDES if call.arguments["fileType"] == "ppt" else "")
    chars = 0
    async with aclosing(asker.stream(system, f"Task: {call.arguments['task']}")) as texts:
        async for text in texts:
            chars += len(text)
            if chars > TEXT_CHARS_MAX:
                raise ModelFailed(f"the report grew over {TEXT_CHARS_MAX} characters")
            yield text


async def _keep(call: Call, kind: str, text: str, path: str) -> int:
    """Write the file, which outputs.py publishes; how many characters it cannot show."""
    if not text.strip():
        raise ModelFailed("the model wrote nothing")
    made = await make_file(text, kind)
    workspace = await in_thread(path, lambda: call.workspaces.open(call.chat_id))
    await in_thread(path, lambda: workspace.write(path, made.data))
    return made.missing


def _path(call: Call, suffix: str) -> str:
    """The same for the same call: run again after a crash, it replaces its own file."""
    words = re.findall(r"\w+", call.arguments["task"].lower())
    subject = "-".join(words)[:40].strip("-_") or "report"
    key = call.request.effect_key or f"{call.request.run_id}/{call.request.tool_call_id}"
    return f"outputs/{subject}-{hashlib.sha256(key.encode()).hexdigest()[:6]}.{suffix}"


def _unwrapped(text: str) -> str:
    """Without the code block that some models put around a whole Markdown text whatever they are told."""
    match = re.fullmatch(r"\s*```(?:markdown|md)?\n(.*)\n```\s*", text, re.DOTALL)
    return match[1] if match and "\n```" not in match[1] else text


def _note(missing: int) -> str:
    return f"; {missing} characters are not in the fonts of a PDF and stand there as ?" if missing else ""


TOOL = Tool(
    name="report",
    description=(
        "Have a report written and made into a file for the user in outputs/: a web page, Markdown, slides or a PDF. "
        "Give all the facts in the task."
    ),
    parameters=json.dumps(PARAMETERS),
    effect="idempotent",
    execute=execute,
    tier="enabled",
    asks_model=True,
)
