"""REACT: think, call one tool, observe, up to the agent's steps; then a final call without tools."""

from __future__ import annotations

from services.orchestrator.mode_api.mode_run import ModeRun


async def run_react(mode: ModeRun) -> str:
    parallel = mode.allows_parallel_calls(by_default=mode.settings.parallel_tool_calls)
    choice = mode.choose_first_turn()
    if choice == "none" and mode.has_tools:
        return await mode.ask_for_final_answer()
    turns = await mode.take_turns(choice, parallel=parallel)
    if turns.answer is None:
        return await mode.ask_for_final_answer(turns.limit)
    if turns.answer.text.strip() or turns.answer.finish_reason == "content_filter":
        return await mode.finish_answer(turns.answer)
    return await mode.ask_for_final_answer()
