"""ONESHOT: one model call, its tools once, then a final call without tools."""

from __future__ import annotations

from services.orchestrator.mode_api.final_answer import NO_TOOLS
from services.orchestrator.mode_api.limits import OutOfCalls
from services.orchestrator.mode_api.mode_run import ModeRun


async def run_oneshot(mode: ModeRun) -> str:
    choice, parallel = mode.choose_first_turn(), mode.allows_parallel_calls(by_default=True)
    try:
        answer = await mode.ask_first_turn(choice, parallel=parallel)
    except OutOfCalls:
        return await mode.ask_for_final_answer("budget")
    if not answer.calls or choice == "none" or not mode.has_tools:
        await mode.refuse_calls(answer, NO_TOOLS)
        return await mode.finish_answer(answer)
    try:
        await mode.execute_calls(answer, parallel=parallel)
    except OutOfCalls:
        return await mode.ask_for_final_answer("budget")
    return await mode.ask_for_final_answer()
