"""Values that a mode was told beside the conversation, and errors that its steps ended with, kept in the log."""

from __future__ import annotations

from headrace.v1 import llm_pb2, memory_pb2
from services.orchestrator.run.replay.fit import Kept
from services.orchestrator.run.replay.replay import KEPT_STAGE
from services.orchestrator.run.scope import Scope
from services.runtime.clock import now_ms


async def keep(scope: Scope, step: int, name: str, kept: Kept) -> None:
    """Commit what the log is to have of a step beside messages; no model is shown it."""
    run = scope.run
    await run.state.wait_for_start()
    message = memory_pb2.LogMessage(ts=now_ms(), message=llm_pb2.Message(role="user"))
    message.message.content.add(text=kept.dump(step, name))
    line = run.log.step(KEPT_STAGE, [message], run.feed.seq)
    if scope.context_id is not None:
        line.context_id = scope.context_id
    if scope.ids.task_id is not None:
        line.task_id = scope.ids.task_id
    await run.log.append([memory_pb2.LogLine(step=line)])
