"""The first turn of a run or sub-agent, in which a call may be required."""

from __future__ import annotations

from headrace.errors import InvalidRequest, ToolRequired
from services.orchestrator.run.answers.answer import Answer
from services.orchestrator.turn.conversation import Conversation

REPAIRS_MAX = 2

REPAIR_PROMPT = "You must call one of the tools now; answer after its result."


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
