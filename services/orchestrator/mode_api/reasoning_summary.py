"""Output REASONING_SUMMARY: readers get a summary after the answer, the log alone has the reasoning."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import grpc
import structlog

from headrace.errors import HeadraceError
from headrace.v1 import llm_pb2
from services.orchestrator.agents import prompts
from services.orchestrator.turn import side_question

if TYPE_CHECKING:
    from services.orchestrator.run.answers.answer import Answer
    from services.orchestrator.turn.conversation import Conversation

REASONING_CHARS_MAX = 60_000
"""About 15,000 tokens, which fit every model's window."""

STAGE = "reasoning_summary"

log = structlog.get_logger()


async def write_summary(talk: Conversation) -> None:
    scope = talk.scope
    text = "\n\n".join(scope.notes.thoughts)[-REASONING_CHARS_MAX:].strip()
    if not text:
        return
    if recalled := scope.recalled_answer():
        talk.run.spending.recall_model_call(recalled.usage)
        return
    await talk.run.log.commit_held()
    model = scope.settings.model
    request = side_question.make_question(model, STAGE, prompts.load_text(STAGE), text)
    try:
        needs = await side_question.measure_question(talk.run, talk.peers, model, request)
        async with talk.run.spending.model_call(needs) as reservation:
            take = partial(_take_as_reasoning, scope.begin_answer())
            await side_question.stream_charged(talk.run, talk.peers, request, needs, reservation, take)
    except (HeadraceError, TimeoutError, grpc.aio.AioRpcError) as error:
        reason = error.reason if isinstance(error, HeadraceError) else type(error).__name__
        log.warning("reasoning not summed up", run_id=talk.run.id, reason=reason)
    await scope.end_answer()


def _take_as_reasoning(answer: Answer, delta: llm_pb2.LlmDelta) -> None:
    if delta.HasField("content"):
        answer.take(llm_pb2.LlmDelta(reasoning=delta.content).SerializeToString())
    elif delta.HasField("usage"):
        answer.take(delta.SerializeToString())
