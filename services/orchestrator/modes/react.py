"""REACT: think, call one tool, observe, up to the agent's steps; then a final call without tools."""

from __future__ import annotations

from services.orchestrator.modes.limits import OutOfCalls, translating_call_limit
from services.orchestrator.modes.oneshot import (
    allows_parallel_calls,
    ask_first_turn,
    ask_for_final_answer,
    choose_first_turn,
    finish_answer,
)
from services.orchestrator.modes.repetition import Repetition, Stuck
from services.orchestrator.run.answers.answer import Answer
from services.orchestrator.turn.conversation import Conversation


async def run_react(talk: Conversation) -> str:
    settings = talk.scope.settings
    parallel = allows_parallel_calls(talk, by_default=settings.parallel_tool_calls)
    choice = choose_first_turn(talk)
    if choice == "none" and talk.has_tools:
        return await ask_for_final_answer(talk)
    try:
        answer = await _take_turns(talk, choice, parallel=parallel)
    except OutOfCalls:
        return await ask_for_final_answer(talk, "budget")
    except Stuck:
        return await ask_for_final_answer(talk, "stuck")
    if answer is None:
        return await ask_for_final_answer(talk, "steps")
    if answer.text.strip() or answer.finish_reason == "content_filter":
        return await finish_answer(talk, answer)
    return await ask_for_final_answer(talk)


async def _take_turns(talk: Conversation, choice: str, *, parallel: bool) -> Answer | None:
    """Return the first answer without calls, None when the turns are used up.

    Raises:
        OutOfCalls: Model or tool calls are used up.
        Stuck: The model repeats itself.
    """
    repetition = Repetition(talk.scope.agent.limits.max_repeats)
    for _ in range(talk.scope.settings.steps_max):
        if talk.run.spending.is_out_of_calls:
            raise OutOfCalls
        with translating_call_limit():
            answer = await ask_first_turn(talk, choice, parallel=parallel)
        choice = "auto"
        if not answer.calls:
            return answer
        with translating_call_limit():
            await repetition.execute_calls(talk, answer, parallel=parallel)
    return None
