"""Executes a run: its first turn is prepared while its query is stored (docs/decisions/0012)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from headrace.errors import HeadraceError, to_failure
from headrace.run_states import State
from headrace.v1 import common_pb2, memory_pb2
from services.orchestrator.mode_api.mode_run import ModeRun
from services.orchestrator.modes.catalogue import RUNNERS
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.control.state import Stopped
from services.orchestrator.run.run import Run
from services.orchestrator.setup import run_setup, system_message
from services.orchestrator.setup.run_setup import set_up_run
from services.orchestrator.turn import context
from services.orchestrator.turn.conversation import Conversation
from services.runtime.ending import release_frames

log = structlog.get_logger()


async def take_back(run: Run, peers: Peers) -> None:
    checkpoint_id = run.chat.revert()
    if checkpoint_id is None:
        return
    request = memory_pb2.RevertRequest(
        chat_id=run.chat_id,
        checkpoint_id=checkpoint_id,
        scope="model",
        run_id=run.id,
        generation=run.log.generation,
    )
    await peers.memory.Revert(request)


INTERNAL = common_pb2.Failure(code="INTERNAL", message="internal error", retriable=False)


@dataclass(frozen=True, slots=True)
class Opening:
    resets: memory_pb2.AppendRequest | None = None

    notices: Sequence[tuple[str, str]] = ()


NOTHING = Opening()


def work_ahead(run: Run, peers: Peers, opening: Opening) -> asyncio.Task[str]:
    """Prepare the first turn, which `execute` continues; the caller drops it at the latest when the run ends."""

    async def work() -> str:
        await asyncio.sleep(0)  # lets the append be sent first, because everything waits for it
        return await _run_mode(run, peers, opening)

    task = asyncio.create_task(work())
    run.control.begin_work(task)
    return task


async def drop_work(work: asyncio.Task[str]) -> None:
    """Cancel the work and ignore its outcome."""
    if not work.done():
        work.cancel()
        await asyncio.wait((work,))
    _ = work.cancelled() or work.exception()  # nobody else may have taken it


async def execute(run: Run, peers: Peers, opening: Opening) -> memory_pb2.RunLine | None:
    """Execute the run; return its last line, or None if the run is left to its next owner."""
    control, clock = run.control, run.spending.clock
    clock.start(run.restored.worked_ms / 1000)
    work = control.work or asyncio.create_task(_run_mode(run, peers, opening))
    control.begin_work(work)
    clock.watch(run.expire)
    run.state.start()
    try:
        if control.must_end:
            work.cancel()
        await asyncio.wait((work,))
    finally:
        clock.unwatch()
        work.cancel()
    try:
        return memory_pb2.RunLine(state=State.COMPLETED, finish_reason=await work, output=run.main.notes.output)
    except (asyncio.CancelledError, Stopped) as ending:
        # The run keeps its work with this error, for as long as readers may attach.
        release_frames(ending)
        if control.is_given_up and (run.log.is_lost or control.mode != "now"):
            return None
        if control.error is not None:
            return memory_pb2.RunLine(state=State.FAILED, error=to_failure(control.error))
        return memory_pb2.RunLine(state=State.CANCELLED)
    except HeadraceError as error:
        release_frames(error)
        if control.is_given_up or run.log.is_lost:
            return None
        if control.mode == "now":
            # A peer's error about a call that a cancel has just broken off is not why the run ended.
            return memory_pb2.RunLine(state=State.CANCELLED)
        return memory_pb2.RunLine(state=State.FAILED, error=to_failure(error))
    except Exception as error:
        # The supervisor of a run: a bug in one run must end it honestly and leave the others alone.
        log.exception("run failed", run_id=run.id)
        release_frames(error)
        return memory_pb2.RunLine(state=State.FAILED, error=INTERNAL)


async def _run_mode(run: Run, peers: Peers, opening: Opening) -> str:
    if opening.resets is not None:
        await run.log.commit(opening.resets)
    if run.past.reason:
        await peers.wait_for_peers()
    for code, message in opening.notices:
        await run.main.notice(code, message)
    await take_back(run, peers)
    await run_setup.record_goal(run, peers)
    found = await set_up_run(run, peers)
    run.main.begin(await system_message.make_prompt_context(run, peers, found))
    conversation = Conversation(run.main, peers, found.tools)
    if context.is_compact_command(run.query.message):
        run.main.log_steps_as(context.COMPACT_STAGE)
        return await context.run_compaction(conversation)
    return await RUNNERS[run.agent.mode](ModeRun(conversation, run.query.message))
