"""ONESHOT: one model call, its tools once, then a final call without tools."""

from __future__ import annotations

from headrace.errors import NoAnswer, ToolRequired
from services.orchestrator.modes import reasoning_summary, verify
from services.orchestrator.run.answers.answer import Answer
from services.orchestrator.turn.conversation import Conversation

REPAIRS_MAX = 2

REPAIR_PROMPT = "You must call one of the tools now; answer after its result."


async def run_oneshot(talk: Conversation) -> str:
    required = requires_tool(talk)
    if not talk.has_tools:
        return await finish_answer(talk, await talk.ask_model("none"))
    answer = await ask_for_tool_call(talk, parallel=True) if required else await talk.ask_model("auto", parallel=True)
    if not answer.calls:
        return await finish_answer(talk, answer)
    await talk.execute_calls(answer, parallel=True)
    return await ask_for_final_answer(talk)


def requires_tool(talk: Conversation) -> bool:
    """Return whether the first turn has to call a tool.

    Raises:
        ToolRequired: The stage has no tool to call.
    """
    required = talk.scope.settings.policy == "REQUIRE"
    if required and not talk.has_tools:
        raise ToolRequired("the agent's toolPolicy is REQUIRE, and no tool is in force; name some in its toolConfig")
    return required


async def ask_for_tool_call(talk: Conversation, *, parallel: bool) -> Answer:
    """Ask with reminders until the model calls a tool.

    Raises:
        ToolRequired: The model called none.
    """
    for attempt in range(REPAIRS_MAX + 1):
        if attempt:
            await talk.scope.add_user_message(REPAIR_PROMPT)
        answer = await talk.ask_model("required", parallel=parallel)
        if answer.calls:
            return answer
    raise ToolRequired(f"the model called no tool in {REPAIRS_MAX + 1} turns, and the agent's toolPolicy is REQUIRE")


async def ask_for_final_answer(talk: Conversation, reason: str = "") -> str:
    """Ask without tools; `reason` says why the loop ended, if the model did not end it.

    A run that has only its model calls spent is granted this one, a sub-agent is not.
    """
    beyond = talk.run.spending.is_out_of_calls and talk.scope.depth == 0
    answer = await talk.ask_model("none", beyond_budget=beyond)
    if answer.calls:
        await talk.refuse_calls(answer, "no tool may be called any more; answer with what is known")
    return await finish_answer(talk, answer, "budget" if beyond else reason)


async def finish_answer(talk: Conversation, answer: Answer, reason: str = "") -> str:
    """Return the finish reason, after a second pass where the agent wants one.

    Raises:
        NoAnswer: The answer has no text.
    """
    if answer.is_draft:
        answer = await verify.run_second_pass(talk, answer)
    await reasoning_summary.write_summary(talk)
    if answer.finish_reason == "content_filter":
        return "content_filter"
    if not answer.text.strip():
        raise NoAnswer("the model ended without an answer; ask again or another model")
    return reason or ("length" if answer.finish_reason == "length" else "stop")
