"""The runners of modes; each returns the finish reason."""

from __future__ import annotations

import structlog

from headrace.errors import HeadraceError, ModeFailed, ModeUnavailable, NoAnswer
from services.orchestrator.agents.mode_files import ModeCode
from services.orchestrator.mode_api.final_answer import NO_TOOLS, finish_answer
from services.orchestrator.mode_api.mode import Mode
from services.orchestrator.mode_api.mode_run import ModeRun, Stopped
from services.orchestrator.mode_api.remote.conversation import RemoteConversation
from services.orchestrator.mode_api.turns import OutOfCalls, allows_parallel_calls, choose_first_turn
from services.orchestrator.modes.plan_execute import run_plan_execute

log = structlog.get_logger()


async def run_oneshot(mode: ModeRun) -> str:
    choice, parallel = choose_first_turn(mode.conversation), allows_parallel_calls(mode.conversation, by_default=True)
    try:
        answer = await mode.ask_first_turn(choice, parallel=parallel)
    except OutOfCalls:
        return await mode.ask_for_final_answer("budget")
    if not answer.calls or choice == "none" or not mode.conversation.has_tools:
        await mode.refuse_calls(answer, NO_TOOLS)
        return await finish_answer(mode.conversation, answer)
    try:
        await mode.execute_calls(answer, parallel=parallel)
    except OutOfCalls:
        return await mode.ask_for_final_answer("budget")
    return await mode.ask_for_final_answer()


async def run_react(mode: ModeRun) -> str:
    parallel = allows_parallel_calls(mode.conversation, by_default=mode.settings.parallel_tool_calls)
    choice = choose_first_turn(mode.conversation)
    if choice == "none" and mode.conversation.has_tools:
        return await mode.ask_for_final_answer()
    turns = await mode.take_turns(choice, parallel=parallel)
    if turns.answer is None:
        return await mode.ask_for_final_answer(turns.limit)
    if turns.answer.text.strip() or turns.answer.finish_reason == "content_filter":
        return await finish_answer(mode.conversation, turns.answer)
    return await mode.ask_for_final_answer()


async def run_custom(run: ModeRun) -> str:
    section = run.agent.custom
    assert section is not None, "the mode has its section"
    run.check_wants_no_call()
    code = run.conversation.run.find_mode(section.mode)
    if code is None:
        known = ", ".join(run.conversation.run.services.modes.names) or "none"
        raise ModeUnavailable(f"the mode {section.mode!r} has no valid file; modes: {known}", mode=section.mode)
    mode = Mode.open(run, section.max_steps)
    try:
        text = await code.run(mode)
        if text is not None:
            await mode.finish(text)
        mode.check_end()
    except (HeadraceError, Stopped):
        raise
    except Exception as error:
        # The code is the operator's: any exception it raises ends this run with a report.
        if run.conversation.run.control.is_stopping:
            raise Stopped from error
        raise _make_failure(run, code, error) from error
    finally:
        await mode.close()
    if not mode.finish_reason:
        raise NoAnswer(f"the mode {section.mode!r} has returned no text and asked for no answer")
    return mode.finish_reason


def _make_failure(run: ModeRun, code: ModeCode, error: Exception) -> ModeFailed:
    """Return the run's error, and log the details; only operators receive the file and line.

    The exception's message is only logged, because it may contain anything.
    """
    kind, line = type(error).__name__, code.find_line(error)
    log.error("mode failed", run_id=run.run_id, file=code.path, line=line, exc_info=error)
    message = f"the mode {code.name!r} ended with {kind}; the orchestrator's log says more"
    if "operate" not in run.conversation.run.identity.scopes:
        return ModeFailed(message, mode=code.name)
    return ModeFailed(f"{message} ({code.name}.py, line {line})", mode=code.name, file=f"{code.name}.py", line=line)


async def run_remote(mode: ModeRun) -> str:
    mode.check_wants_no_call()
    return await RemoteConversation(mode).run()


RUNNERS = {
    "ONESHOT": run_oneshot,
    "REACT": run_react,
    "PLAN_EXECUTE": run_plan_execute,
    "CUSTOM": run_custom,
    "REMOTE": run_remote,
}
