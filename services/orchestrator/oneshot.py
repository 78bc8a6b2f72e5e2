"""ONESHOT: one call; if it asks for tools they run once, then a final call without tools gives the answer."""

from __future__ import annotations

from headrace.errors import NoAnswer, ToolRequired
from services.orchestrator.answer import Answer
from services.orchestrator.conversation import Conversation

REPAIRS_MAX = 2
"""Turns that remind a model of a required tool (agents.md)."""

REPAIR_PROMPT = "You must call one of the tools now; answer after its result."


async def oneshot(talk: Conversation) -> str:
    """Run to the answer; returns the finish reason."""
    if not talk.has_tools:
        return finish(await talk.ask("none"))
    required = talk.run.agent.policy == "REQUIRE"
    answer = await ask_for_tool(talk, parallel=True) if required else await talk.ask("auto", parallel=True)
    if not answer.calls:
        return finish(answer)
    await talk.execute(answer, parallel=True)
    return await final_answer(talk)


async def ask_for_tool(talk: Conversation, *, parallel: bool) -> Answer:
    """One turn that must call a tool, repaired twice.

    Raises:
        ToolRequired: The model still called none.
    """
    for attempt in range(REPAIRS_MAX + 1):
        if attempt:
            await talk.scope.add_user_message(REPAIR_PROMPT)
        answer = await talk.ask("required", parallel=parallel)
        if answer.calls:
            return answer
    raise ToolRequired(f"the model called no tool in {REPAIRS_MAX + 1} turns, and the agent's toolPolicy is REQUIRE")


async def final_answer(talk: Conversation, reason: str = "") -> str:
    """One call without tools for the answer. `reason` is why the loop ended, when not by itself.

    When only the budget of model calls is spent, this one is granted all the same.
    """
    beyond = talk.run.spending.model_calls_left == 0
    answer = await talk.ask("none", beyond_budget=beyond)
    if answer.calls:
        await talk.refuse(answer, "no tool may be called any more; answer with what is known")
    return finish(answer, "budget" if beyond else reason)


def finish(answer: Answer, reason: str = "") -> str:
    """The finish reason of a last answer.

    Raises:
        NoAnswer: It has no text.
    """
    if answer.finish_reason == "content_filter":
        return "content_filter"
    if not answer.text.strip():
        raise NoAnswer("the model ended without an answer; ask again or another model")
    return reason or ("length" if answer.finish_reason == "length" else "stop")
