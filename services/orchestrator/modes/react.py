"""REACT: think, call one tool, observe, up to the agent's steps; then a final call without tools."""

from __future__ import annotations

from services.orchestrator.modes.oneshot import ask_for_final_answer, ask_for_tool_call, finish_answer, requires_tool
from services.orchestrator.turn.conversation import Conversation

REPEATS_WARNED = 3
"""One more repetition ends the loop."""

WARNING = "warning: this was the same call with the same arguments for the third time; use what it gave, or change it"


async def run_react(talk: Conversation) -> str:
    spending, settings = talk.run.spending, talk.scope.settings
    parallel = settings.parallel_tool_calls
    required = requires_tool(talk)
    last_calls: list[tuple[str, str]] = []
    repeats = 0
    for _ in range(settings.steps_max):
        if spending.is_out_of_calls:
            return await ask_for_final_answer(talk)
        choice = "auto" if talk.has_tools else "none"
        answer = await (
            ask_for_tool_call(talk, parallel=parallel) if required else talk.ask_model(choice, parallel=parallel)
        )
        required = False
        if not answer.calls:
            if answer.text.strip() or answer.finish_reason == "content_filter":
                return await finish_answer(talk, answer)
            return await ask_for_final_answer(talk)
        calls = [(call.name, call.arguments) for call in answer.calls]
        repeats = repeats + 1 if calls == last_calls else 1
        last_calls = calls
        if repeats > REPEATS_WARNED:
            await talk.refuse_calls(answer, "the same call was made three times already; answer with what is known")
            break
        await talk.execute_calls(answer, parallel=parallel, warning=WARNING if repeats == REPEATS_WARNED else "")
    return await ask_for_final_answer(talk, "steps")
