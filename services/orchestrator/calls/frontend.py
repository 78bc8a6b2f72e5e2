"""Frontend tools, including ask_human: the run waits for what a person or the caller's program submits."""

from __future__ import annotations

import msgspec

from headrace.v1 import tools_pb2
from services.orchestrator.calls import outcomes
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.people.forms import ASK_HUMAN, Question, ask_for_result
from services.orchestrator.run.answers.call import Call
from services.orchestrator.run.scope import Scope


async def execute_frontend(scope: Scope, peers: Peers, call: Call) -> tools_pb2.ToolOutcome:
    submission = await ask_for_result(scope, call)
    if submission is not None:
        return tools_pb2.ToolOutcome(ok=True, result=outcomes.truncate_result(_read_text(submission.payload)))
    if call.name.casefold() == ASK_HUMAN:
        question = msgspec.json.decode(call.effective, type=Question)
        if question.default and not question.required:
            return outcomes.make_success(answer=question.default, expired=True)
    return outcomes.make_failure("expired")


def _read_text(payload: str) -> str:
    """Return what a submission says: a JSON string's text, which models read better than its escapes, else the JSON."""
    if not payload.startswith('"'):
        return payload
    try:
        return msgspec.json.decode(payload, type=str)
    except msgspec.DecodeError:
        return payload
