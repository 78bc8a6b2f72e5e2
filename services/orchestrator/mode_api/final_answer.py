"""The last turn of a run or sub-agent: without tools, checked, and in its form."""

from __future__ import annotations

from headrace.errors import NoAnswer
from services.orchestrator.mode_api import reasoning_summary, verify
from services.orchestrator.mode_api.limits import tell_limit
from services.orchestrator.run.answers.answer import Answer
from services.orchestrator.turn import output_form
from services.orchestrator.turn.conversation import Conversation

NO_TOOLS = "no tool may be called any more; answer with what is known"

ANSWER_PROMPT = "No tool can be called any more. Answer now, with what is known."


async def ask_for_final_answer(talk: Conversation, reason: str = "") -> str:
    """Ask without tools; `reason` is steps, budget or stuck if that ended the model's work, and not the model itself.

    A run that has only its model calls spent is granted this one, a sub-agent is not.
    """
    beyond = talk.run.spending.is_out_of_calls and talk.scope.depth == 0
    reason = "budget" if beyond else reason
    if reason in ("steps", "budget"):
        await tell_limit(talk.scope, reason)
    answer = await talk.ask_model("none", beyond_budget=beyond)
    await talk.refuse_calls(answer, NO_TOOLS)
    is_silent = not answer.text.strip() and answer.finish_reason != "content_filter"
    if reason and is_silent and not talk.run.spending.is_out_of_calls:
        await talk.scope.add_user_message(ANSWER_PROMPT)
        answer = await talk.ask_model("none")
        await talk.refuse_calls(answer, NO_TOOLS)
    return await finish_answer(talk, answer, reason)


async def finish_answer(talk: Conversation, answer: Answer, reason: str = "") -> str:
    """Return the finish reason, after a second pass where the agent wants one.

    A model that says nothing more at a limit is taken at its last words.

    Raises:
        NoAnswer: The answer has no text.
        OutputMismatch: It does not have its form.
    """
    if answer.is_draft:
        answer = await verify.run_second_pass(talk, answer)
    await reasoning_summary.write_summary(talk)
    if answer.finish_reason == "content_filter":
        return "content_filter"
    if not answer.text.strip() and reason and talk.scope.notes.last_text:
        answer = await verify.release_text(talk, talk.scope.notes.last_text, "stop")
    if not answer.text.strip():
        reached = reason or ("maxTokens" if answer.finish_reason == "length" else "")
        limit = f" at its limit ({reached})" if reached else ""
        raise NoAnswer(f"the model ended without an answer{limit}; ask again or another model")
    if (form := output_form.find_form(talk.scope)) is not None and answer.finish_reason != "length":
        talk.scope.notes.output = form.read_output(answer.text).require_json()
    return reason or ("stop" if answer.finish_reason in ("", "tool_calls") else answer.finish_reason)
