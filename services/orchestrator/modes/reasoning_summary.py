"""Output REASONING_SUMMARY: readers get a summary after the answer, the log alone has the reasoning."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
import structlog

from headrace.errors import HeadraceError
from headrace.streams import reading
from headrace.v1 import common_pb2, llm_pb2
from services.orchestrator.agents import prompts
from services.orchestrator.turn import side_question
from services.runtime.rpc.call_ids import forward_metadata

if TYPE_CHECKING:
    from services.orchestrator.run.answers.answer import Answer
    from services.orchestrator.turn.conversation import Conversation

REASONING_CHARS_MAX = 60_000
"""About 15,000 tokens, which fit every model's window."""

CHARS_PER_TOKEN, OUTPUT_TOKENS = 4, 500

STAGE = "reasoning_summary"

log = structlog.get_logger()


async def write_summary(talk: Conversation) -> None:
    scope = talk.scope
    text = "\n\n".join(scope.notes.thoughts)[-REASONING_CHARS_MAX:].strip()
    if not text:
        return
    if recalled := scope.recalled_answer():
        talk.run.spending.recall_model_call(recalled.usage or common_pb2.Usage())
        return
    try:
        async with talk.run.spending.model_call(len(text) // CHARS_PER_TOKEN + OUTPUT_TOKENS):
            await _stream_summary(talk, scope.begin_answer(), text)
    except (HeadraceError, TimeoutError, grpc.aio.AioRpcError) as error:
        reason = error.reason if isinstance(error, HeadraceError) else type(error).__name__
        log.warning("reasoning not summed up", run_id=talk.run.id, reason=reason)
    await scope.end_answer()


async def _stream_summary(talk: Conversation, answer: Answer, text: str) -> None:
    timeout_s = min(side_question.TIMEOUT_S, talk.run.spending.time_left_s)
    request = side_question.make_question(talk.scope.settings.model, STAGE, prompts.load_text(STAGE), text)
    rpc = talk.peers.llm.StreamChat(request, timeout=timeout_s, metadata=forward_metadata())
    async with asyncio.timeout(timeout_s), reading(rpc) as deltas:
        async for delta in deltas:
            if delta.HasField("content"):
                answer.take(llm_pb2.LlmDelta(reasoning=delta.content).SerializeToString())
            elif delta.HasField("usage"):
                answer.take(delta.SerializeToString())
                talk.run.spending.settle(delta.usage)
