"""Verify SECOND_PASS_FIX: a second turn checks the first answer, a draft with stage `verify`, which no model is shown.

When that turn fails before readers have any of it, they get the draft as one delta, and VERIFY_SKIPPED.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from headrace.errors import HeadraceError
from headrace.v1 import llm_pb2

if TYPE_CHECKING:
    from services.orchestrator.run.answers.answer import Answer
    from services.orchestrator.turn.conversation import Conversation

log = structlog.get_logger()


async def run_second_pass(talk: Conversation, draft: Answer) -> Answer:
    if draft.finish_reason == "content_filter":
        return await release_text(talk, draft.text, draft.finish_reason)
    why = "the second turn gave no text"
    talk.scope.attention.draft = draft.text
    try:
        answer = await talk.ask_model("none")
        await talk.refuse_calls(answer, "no tool may be called any more; give the final answer")
        if answer.text.strip():
            return answer
    except HeadraceError as error:
        if not talk.scope.forget_answer():
            raise
        log.warning("answer not checked", run_id=talk.run.id, reason=error.reason)
        why = error.reason
    finally:
        talk.scope.attention.draft = ""
    await talk.scope.notice("VERIFY_SKIPPED", f"the answer was not checked a second time: {why}")
    return await release_text(talk, draft.text, draft.finish_reason)


async def release_text(talk: Conversation, text: str, finish_reason: str) -> Answer:
    """Give readers `text` as an answer, unless they have it from an earlier owner of the run."""
    if recalled := talk.scope.recalled_answer():
        return recalled
    answer = talk.scope.begin_answer()
    answer.take(llm_pb2.LlmDelta(content=text).SerializeToString())
    answer.take(llm_pb2.LlmDelta(finish=llm_pb2.LlmFinish(reason=finish_reason)).SerializeToString())
    await talk.scope.end_answer()
    return answer
