"""The last turn of a run or sub-agent: without tools, in its form, and with a second pass if the agent requires it."""

from __future__ import annotations

from functools import partial

import grpc
import structlog

from headrace.errors import HeadraceError, NoAnswer
from headrace.v1 import llm_pb2
from services.orchestrator.agents import prompts
from services.orchestrator.mode_api.turns import tell_limit
from services.orchestrator.run.answers.answer import Answer
from services.orchestrator.turn import model_stream, output_form
from services.orchestrator.turn.conversation import Conversation

REASONING_CHARS_MAX = 60_000
"""Maximum characters, about 15,000 tokens, which fit every model's window."""

STAGE = "reasoning_summary"

log = structlog.get_logger()


async def write_summary(conversation: Conversation) -> None:
    scope = conversation.scope
    text = "\n\n".join(scope.notes.thoughts)[-REASONING_CHARS_MAX:].strip()
    if not text:
        return
    if recalled := scope.recalled_answer():
        conversation.run.spending.recall_model_call(recalled.usage)
        return
    await conversation.run.log.commit_held()
    model = scope.settings.model
    request = model_stream.make_question(model, STAGE, prompts.load_text(STAGE), text)
    try:
        needs = await model_stream.measure_question(conversation.run, conversation.peers, model, request)
        async with conversation.run.spending.model_call(needs) as reservation:
            take = partial(_take_as_reasoning, scope.begin_answer())
            await model_stream.stream_charged(conversation.run, conversation.peers, request, needs, reservation, take)
    except (HeadraceError, TimeoutError, grpc.aio.AioRpcError) as error:
        reason = error.reason if isinstance(error, HeadraceError) else type(error).__name__
        log.warning("reasoning not summed up", run_id=conversation.run.id, reason=reason)
    await scope.end_answer()


def _take_as_reasoning(answer: Answer, delta: llm_pb2.LlmDelta) -> None:
    if delta.HasField("content"):
        answer.take(llm_pb2.LlmDelta(reasoning=delta.content).SerializeToString())
    elif delta.HasField("usage"):
        answer.take(delta.SerializeToString())


async def run_second_pass(conversation: Conversation, draft: Answer) -> Answer:
    if draft.finish_reason == "content_filter":
        return await release_text(conversation, draft.text, draft.finish_reason)
    why = "the second turn gave no text"
    conversation.scope.attention.draft = draft.text
    try:
        answer = await conversation.ask_model("none")
        await conversation.refuse_calls(answer, "no tool may be called any more; give the final answer")
        if answer.text.strip():
            return answer
    except HeadraceError as error:
        if not conversation.scope.forget_answer():
            raise
        log.warning("answer not checked", run_id=conversation.run.id, reason=error.reason)
        why = error.reason
    finally:
        conversation.scope.attention.draft = ""
    await conversation.scope.notice("VERIFY_SKIPPED", f"the answer was not checked a second time: {why}")
    return await release_text(conversation, draft.text, draft.finish_reason)


async def release_text(conversation: Conversation, text: str, finish_reason: str) -> Answer:
    """Send `text` to readers as an answer, unless an earlier owner of the run has sent it."""
    if recalled := conversation.scope.recalled_answer():
        return recalled
    answer = conversation.scope.begin_answer()
    answer.take(llm_pb2.LlmDelta(content=text).SerializeToString())
    answer.take(llm_pb2.LlmDelta(finish=llm_pb2.LlmFinish(reason=finish_reason)).SerializeToString())
    await conversation.scope.end_answer()
    return answer


NO_TOOLS = "no tool may be called any more; answer with what is known"

ANSWER_PROMPT = "No tool can be called any more. Answer now, with what is known."


async def ask_for_final_answer(conversation: Conversation, reason: str = "") -> str:
    """Ask for the answer without tools; `reason` is steps, budget or stuck if that ended the work, else empty.

    A run that has spent only its model calls is granted this one; a sub-agent is not.
    """
    beyond = conversation.run.spending.is_out_of_calls and conversation.scope.depth == 0
    reason = "budget" if beyond else reason
    if reason in ("steps", "budget"):
        await tell_limit(conversation.scope, reason)
    answer = await conversation.ask_model("none", beyond_budget=beyond)
    await conversation.refuse_calls(answer, NO_TOOLS)
    is_silent = not answer.text.strip() and answer.finish_reason != "content_filter"
    if reason and is_silent and not conversation.run.spending.is_out_of_calls:
        await conversation.scope.add_user_message(ANSWER_PROMPT)
        answer = await conversation.ask_model("none")
        await conversation.refuse_calls(answer, NO_TOOLS)
    return await finish_answer(conversation, answer, reason)


async def finish_answer(conversation: Conversation, answer: Answer, reason: str = "") -> str:
    """Return the finish reason, after a second pass if the agent requires one.

    If the model writes nothing more at a limit, its last words are the answer.

    Raises:
        NoAnswer: The answer has no text.
        OutputMismatch: The answer does not match its form.
    """
    if answer.is_draft:
        answer = await run_second_pass(conversation, answer)
    await write_summary(conversation)
    if answer.finish_reason == "content_filter":
        return "content_filter"
    if not answer.text.strip() and reason and conversation.scope.notes.last_text:
        answer = await release_text(conversation, conversation.scope.notes.last_text, "stop")
    if not answer.text.strip():
        reached = reason or ("maxTokens" if answer.finish_reason == "length" else "")
        limit = f" at its limit ({reached})" if reached else ""
        raise NoAnswer(f"the model ended without an answer{limit}; ask again or another model")
    if (form := output_form.find_form(conversation.scope)) is not None and answer.finish_reason != "length":
        conversation.scope.notes.output = form.read_output(answer.text).require_json()
    return reason or ("stop" if answer.finish_reason in ("", "tool_calls") else answer.finish_reason)
