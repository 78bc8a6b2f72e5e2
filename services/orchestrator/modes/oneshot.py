"""ONESHOT: one model call, its tools once, then a final call without tools."""

from __future__ import annotations

from headrace.errors import InvalidRequest, NoAnswer, ToolRequired
from services.orchestrator.modes import reasoning_summary, verify
from services.orchestrator.modes.limits import OutOfCalls, tell_limit, translating_call_limit
from services.orchestrator.run.answers.answer import Answer
from services.orchestrator.turn import output_form
from services.orchestrator.turn.conversation import Conversation

REPAIRS_MAX = 2

NO_TOOLS = "no tool may be called any more; answer with what is known"

ANSWER_PROMPT = "No tool can be called any more. Answer now, with what is known."

REPAIR_PROMPT = "You must call one of the tools now; answer after its result."


async def run_oneshot(talk: Conversation) -> str:
    choice, parallel = choose_first_turn(talk), allows_parallel_calls(talk, by_default=True)
    answer = await ask_first_turn(talk, choice, parallel=parallel)
    if not answer.calls or choice == "none" or not talk.has_tools:
        await talk.refuse_calls(answer, NO_TOOLS)
        return await finish_answer(talk, answer)
    try:
        with translating_call_limit():
            await talk.execute_calls(answer, parallel=parallel)
    except OutOfCalls:
        return await ask_for_final_answer(talk, "budget")
    return await ask_for_final_answer(talk)


def choose_first_turn(talk: Conversation) -> str:
    """Return what the first turn does about tools, if any: the query's toolChoice, or else as the agent's policy says.

    Raises:
        ToolRequired: The stage has no tool to call.
        InvalidRequest: The query's tool is not in force.
    """
    choice = talk.run.query.tool_choice if talk.scope is talk.run.main else ""
    asker = "the query's toolChoice" if choice else "the agent's toolPolicy"
    choice = choice or ("required" if talk.scope.settings.policy == "REQUIRE" else "auto")
    if choice in ("none", "auto"):
        return choice
    if not talk.has_tools:
        raise ToolRequired(f"{asker} asks for a call, and no tool is in force; name some in the agent's toolConfig")
    if choice != "required" and choice not in talk.scope.tools.names:
        known = ", ".join(talk.scope.tools.names)
        raise InvalidRequest.of("toolChoice", f"{choice!r} is neither none, auto, required nor a tool; tools: {known}")
    return choice


def allows_parallel_calls(talk: Conversation, *, by_default: bool) -> bool:
    query = talk.run.query
    if talk.scope is not talk.run.main:
        return by_default
    if query.HasField("parallel_tool_calls"):
        return query.parallel_tool_calls
    return by_default or bool(query.client_tools)


async def ask_first_turn(talk: Conversation, choice: str, *, parallel: bool) -> Answer:
    """Ask, with reminders where a call is required.

    Raises:
        ToolRequired: The model called no tool.
    """
    if choice in ("none", "auto"):
        return await talk.ask_model(choice, parallel=parallel)
    for attempt in range(REPAIRS_MAX + 1):
        if attempt:
            await talk.scope.add_user_message(REPAIR_PROMPT)
        answer = await talk.ask_model(choice, parallel=parallel)
        if answer.calls:
            return answer
    raise ToolRequired(f"the model called no tool in {REPAIRS_MAX + 1} turns, and one was required")


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
        limit = f" at its limit ({reason})" if reason else ""
        raise NoAnswer(f"the model ended without an answer{limit}; ask again or another model")
    if (form := output_form.find_form(talk.scope)) is not None and answer.finish_reason != "length":
        talk.scope.notes.output = form.read_output(answer.text).require_json()
    return reason or ("stop" if answer.finish_reason in ("", "tool_calls") else answer.finish_reason)
