"""Turns of one model: it thinks, calls tools and sees their results, until it says something without a call."""

from __future__ import annotations

from dataclasses import dataclass

from services.orchestrator.mode_api.first_turn import ask_first_turn
from services.orchestrator.mode_api.limits import OutOfCalls, translating_call_limit
from services.orchestrator.mode_api.repetition import Repetition, Stuck
from services.orchestrator.run.answers.answer import Answer
from services.orchestrator.turn.conversation import Conversation


@dataclass(frozen=True, slots=True)
class Turns:
    """How a model's turns have ended."""

    answer: Answer | None
    """The first answer without calls; None where a limit came before it."""

    limit: str = ""
    """The limit: steps, budget or stuck."""


async def take_turns(talk: Conversation, choice: str, *, parallel: bool) -> Turns:
    """Take turns, as many as the stage has steps; `choice` says what the first does about tools."""
    try:
        return await _take_turns(talk, choice, parallel=parallel)
    except OutOfCalls:
        return Turns(None, "budget")
    except Stuck:
        return Turns(None, "stuck")


async def _take_turns(talk: Conversation, choice: str, *, parallel: bool) -> Turns:
    repetition = Repetition(talk.scope.agent.limits.max_repeats)
    for _ in range(talk.scope.settings.steps_max):
        if talk.run.spending.is_out_of_calls:
            raise OutOfCalls
        with translating_call_limit():
            answer = await ask_first_turn(talk, choice, parallel=parallel)
        choice = "auto"
        if not answer.calls:
            return Turns(answer)
        with translating_call_limit():
            await repetition.execute_calls(talk, answer, parallel=parallel)
    return Turns(None, "steps")
