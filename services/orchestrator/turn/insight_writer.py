"""Has a model write insights about a turn's results; a preview stands for one it leaves out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from services.orchestrator.run.insights import insight_line, preview, text_of
from services.orchestrator.turn import side_question

if TYPE_CHECKING:
    from services.orchestrator.peers.stubs import Peers
    from services.orchestrator.run.scope import Scope

INSIGHT_CHARS_MAX = 300

RESULT_CHARS_MAX = 8000

STAGE = "insight"

SYSTEM = """\
You keep notes for an agent that will not see these results again. For each numbered result write one line, \
"<number>. <what it says that matters for the task, with names and figures>". Write nothing else."""

_LINE = re.compile(r"^[ \t]*([0-9]{1,4})[.):][ \t]*(\S.*)$", re.MULTILINE)


async def write_insights(scope: Scope, peers: Peers) -> None:
    results = scope.notes.take_results()
    if not results:
        return
    text = "\n\n".join(
        f"{number}. {message.message.name}:\n{text_of(message)[:RESULT_CHARS_MAX]}"
        for number, message in enumerate(results, start=1)
    )
    answer = await side_question.ask_model(scope.run, peers, STAGE, SYSTEM, text)
    found = {int(number): text.strip()[:INSIGHT_CHARS_MAX] for number, text in _LINE.findall(answer)}
    lines = [
        insight_line(scope.context_id, message, found.get(number) or preview(message))
        for number, message in enumerate(results, start=1)
    ]
    await scope.run.log.append(lines)
