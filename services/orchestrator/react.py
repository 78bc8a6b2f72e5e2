"""REACT: think, call one tool, observe; up to the agent's steps, then a final call without tools."""

from __future__ import annotations

from services.orchestrator.answer import Answer
from services.orchestrator.conversation import Conversation
from services.orchestrator.oneshot import ask_for_tool, final_answer, finish

REPEATS_WARNED = 3
"""The same call this many times running: its result carries a warning; once more ends the loop (agents.md)."""

WARNING = "warning: this was the same call with the same arguments for the third time; use what it gave, or change it"


async def react(talk: Conversation) -> str:
    """Run to the answer; returns the finish reason."""
    spending, agent = talk.run.spending, talk.run.agent
    parallel = agent.react is not None and agent.react.parallel_tool_calls
    must_call = talk.has_tools and agent.policy == "REQUIRE"
    last_calls: list[tuple[str, str]] = []
    repeats = 0
    for _ in range(spending.steps_max):
        if spending.model_calls_left == 0:
            return await final_answer(talk)
        answer = await ask_for_tool(talk, parallel=parallel) if must_call else await _think(talk, parallel)
        must_call = False
        if not answer.calls:
            if answer.text.strip() or answer.finish_reason == "content_filter":
                return finish(answer)
            return await final_answer(talk)
        calls = [(call.name, call.arguments) for call in answer.calls]
        repeats = repeats + 1 if calls == last_calls else 1
        last_calls = calls
        if repeats > REPEATS_WARNED:
            await talk.refuse(answer, "the same call was made three times already; answer with what is known")
            break
        await talk.execute(answer, parallel=parallel, warning=WARNING if repeats == REPEATS_WARNED else "")
    return await final_answer(talk, "steps")


async def _think(talk: Conversation, parallel: bool) -> Answer:
    return await talk.ask("auto" if talk.has_tools else "none", parallel=parallel)
