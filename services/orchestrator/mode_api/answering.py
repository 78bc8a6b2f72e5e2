"""How a mode of an operator's own asks its model, and gives the run's answer."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.errors import NoAnswer
from headrace.v1 import tools_pb2
from services.orchestrator.agents.definition import StageSettings
from services.orchestrator.agents.version import TIERS
from services.orchestrator.mode_api import made_answers
from services.orchestrator.mode_api.final_answer import NO_TOOLS, ask_for_final_answer
from services.orchestrator.mode_api.limits import tell_limit
from services.orchestrator.mode_api.turns import take_turns
from services.orchestrator.turn import output_form
from services.orchestrator.turn.conversation import Conversation

WORK, ANSWER = "work", "custom"
"""Stages: what is no part of the answer, and the answer."""


async def ask(talk: Conversation, text: str, tools: str, *, parallel: bool) -> str:
    if text:
        await talk.scope.add_user_message(text)
    may_call = tools != "none" and talk.has_tools and not is_calling_refused(talk)
    turns = await take_turns(talk, tools, parallel=parallel) if may_call else None
    answer = None if turns is None else turns.answer
    if answer is None:
        if turns is not None and turns.limit in ("steps", "budget"):
            await tell_limit(talk.scope, turns.limit)
        answer = await talk.ask_model("none")
        await talk.refuse_calls(answer, NO_TOOLS)
    if not answer.text.strip():
        raise NoAnswer("the model ended without saying anything; ask again or another model")
    talk.scope.notes.last_said = answer.text.strip()
    return answer.text


def is_calling_refused(talk: Conversation) -> bool:
    """Say whether the query's toolChoice is none, which holds for all of the run but its sub-agents."""
    return talk.run.query.tool_choice == "none" and not talk.scope.depth


async def give_answer(talk: Conversation, text: str) -> str:
    """Stream the run's answer; return the finish reason."""
    scope = talk.scope
    _check_may_answer(talk)
    scope.enter(scope.agent.stage_settings(ANSWER))
    if text:
        await scope.add_user_message(text)
    reason = await ask_for_final_answer(talk)
    scope.notes.last_said = scope.notes.last_text
    scope.enter(scope.agent.stage_settings(WORK))
    return reason


async def give_text(talk: Conversation, text: str) -> str:
    """Take `text` for the run's answer; return the finish reason.

    Raises:
        NoAnswer: It is empty.
        OutputMismatch: It does not have the answer's form.
    """
    scope = talk.scope
    _check_may_answer(talk)
    if not text.strip():
        raise NoAnswer("the mode returned an empty text")
    scope.enter(scope.agent.stage_settings(ANSWER))
    if (form := output_form.find_form(scope)) is not None:
        scope.notes.output = form.read_output(text).require_json()
    await made_answers.say_text(scope, text)
    scope.notes.last_text = scope.notes.last_said = text.strip()
    scope.enter(scope.agent.stage_settings(WORK))
    return "stop"


def select_tools(tools: Iterable[tools_pb2.Tool], settings: StageSettings) -> list[tools_pb2.Tool]:
    """Select those of a run's tools that a stage lists, or that every agent has."""
    if not settings.may_use_tools:
        return []
    listed = {name.casefold() for name in settings.tools}
    tiers = {tier for name, tier in TIERS.items() if name in listed}
    return [
        tool
        for tool in tools
        if tool.name.casefold() in listed or tool.tier in tiers or tool.always_available or tool.kind == "own"
    ]


def _check_may_answer(talk: Conversation) -> None:
    if talk.scope.ids.task_id is not None:
        raise RuntimeError("a task gives no answer of the run: ask, and return what it says")
