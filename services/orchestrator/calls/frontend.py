"""Frontend tools, including ask_human: the run waits for what a person submits."""

from __future__ import annotations

import msgspec

from headrace.v1 import tools_pb2
from services.orchestrator.calls import outcomes
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.answers.call import Call
from services.orchestrator.run.scope import Scope

ASK_HUMAN = "ask_human"


class _Question(msgspec.Struct):
    default: str = ""
    required: bool = True


async def execute_frontend(scope: Scope, peers: Peers, call: Call) -> tools_pb2.ToolOutcome:
    with scope.run.waiting():
        submission = await scope.run.waits.wait(call.tool_id, call.wait_left_ms / 1000)
    if submission is not None:
        return tools_pb2.ToolOutcome(ok=True, result=outcomes.truncate_result(submission.payload))
    if call.name.casefold() == ASK_HUMAN:
        question = msgspec.json.decode(call.effective, type=_Question)
        if question.default and not question.required:
            return outcomes.make_success(answer=question.default, expired=True)
    return outcomes.make_failure("expired")
