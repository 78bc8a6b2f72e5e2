"""One run from accepted to its terminal event, which comes exactly once, whatever fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import structlog

from headrace.errors import HeadraceError, to_failure
from headrace.v1 import common_pb2, memory_pb2
from services.orchestrator import metrics, tracing
from services.orchestrator.lifecycle import leases, rollback
from services.orchestrator.modes.catalogue import RUNNERS
from services.orchestrator.modes.subagents import run_subagent
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.run import Run, Stopped
from services.orchestrator.run.steer_queue import Steer
from services.orchestrator.setup import goal, system_message
from services.orchestrator.setup.run_setup import set_up_run
from services.orchestrator.turn import compact_command
from services.orchestrator.turn.conversation import Conversation

CANCELLED_RESULT = '{"ok":false,"error":"cancelled"}'
INTERRUPTED_RESULT = '{"ok":false,"error":"interrupted"}'
"""What calls get that were asked for and whose run ended before their results."""

FINISH_RETRY_DELAYS_S = (0.0, 0.2, 1.0, 3.0)
"""When the last lines are tried again: memory may be restarting. After that recovery ends the run."""

HAND_OVER_S = 3.0
"""For the last lines of a run that another owner is to go on with: within the process's stop."""

INTERNAL = common_pb2.Failure(code="INTERNAL", message="internal error", retriable=False)

log = structlog.get_logger()


@asynccontextmanager
async def ahead(run: Run, peers: Peers) -> AsyncGenerator[None]:
    """Begin a run's work while its query is on the way to the disk: what its first turn is made of is found out, and
    the turn waits for `drive`. What has not been driven when the block ends is forgotten.
    """
    run.work = work = asyncio.create_task(_work_ahead(run, peers))
    try:
        yield
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


async def drive(run: Run, peers: Peers, chat_created: bool, chat_name: str) -> None:
    """Run `run`, whose query line is committed. Returns after its terminal event; raises only cancellation."""
    query = run.query
    run.main.publish(
        "request_query",
        request_id=query.request_id,
        chat_id=query.chat_id,
        role=query.role,
        message=query.message,
        agent_key=query.agent_key,
        references=query.references,
        params=query.params if query.HasField("params") else None,
        scene=query.scene if query.HasField("scene") else None,
        stream=query.stream if query.HasField("stream") else None,
    )
    await run.my_turn.wait()
    if chat_created:
        run.opens_chat = True
        run.main.publish("chat_start", chat_id=run.chat_id, chat_name=chat_name)
    run.main.publish("run_start", run_id=run.id, chat_id=run.chat_id, agent_key=run.agent.key)
    await _to_the_end(run, peers)


async def go_on(run: Run, peers: Peers) -> None:
    """Run what an earlier owner has left, as `drive` does."""
    await run.my_turn.wait()
    await _to_the_end(run, peers)


async def _to_the_end(run: Run, peers: Peers) -> None:
    line = await _outcome(run, peers)
    if line is None:
        await _hand_over(run, peers)
    else:
        await _finish(run, line)


async def _outcome(run: Run, peers: Peers) -> memory_pb2.RunLine | None:
    """Do the work and say how it ended; None: it has not, and is left to its next owner."""
    run.state = "running"
    run.spending.start_clock(run.recording.worked_ms / 1000)
    run.work = run.work or asyncio.create_task(_work(run, peers))
    run.spending.clock.watch(run.out_of_time)
    run.begun.set()
    try:
        if (run.stop == "now" and run.is_live) or run.stop_error is not None or run.is_given_up:
            run.work.cancel()
        await asyncio.wait((run.work,))
    finally:
        run.spending.clock.unwatch()
        run.work.cancel()
    try:
        return memory_pb2.RunLine(state="completed", finish_reason=await run.work)
    except (asyncio.CancelledError, Stopped):
        error = run.stop_error or run.late_error
        if run.is_given_up and (run.log.is_lost or run.stop != "now"):
            return None
        return _failed(error) if error is not None else memory_pb2.RunLine(state="cancelled")
    except HeadraceError as error:
        # What a peer says of a call that a cancel has just broken off is not why the run ended.
        if run.is_given_up or run.log.is_lost:
            return None
        return memory_pb2.RunLine(state="cancelled") if run.stop == "now" else _failed(error)
    except Exception:
        # The supervisor of a run: a bug in one run must end it honestly and leave the others alone.
        log.exception("run failed", run_id=run.id)
        return memory_pb2.RunLine(state="failed", error=INTERNAL)


async def _hand_over(run: Run, peers: Peers) -> None:
    """Leave the run as the log has it to whoever takes it over; readers are to attach again."""
    try:
        if not run.log.is_lost:
            async with asyncio.timeout(HAND_OVER_S):
                await run.flush()
                await leases.release(run, peers)
    except (HeadraceError, TimeoutError) as error:
        # Its lease runs out, then.
        log.warning("run not handed over", run_id=run.id, reason=getattr(error, "reason", "TIMEOUT"))
    except Exception:
        # The supervisor again.
        log.exception("run not handed over", run_id=run.id)
    finally:
        run.feed.cut()
    log.info("run left to another owner", run_id=run.id, seq=run.feed.seq)


async def _work_ahead(run: Run, peers: Peers) -> str:
    await asyncio.sleep(0)  # the append is about to be sent: it is what everything waits for
    return await _work(run, peers)


async def _work(run: Run, peers: Peers) -> str:
    if run.past.reason:
        await run.tell_readers_to_reset()
        await peers.wait_for_peers()
    if run.past.is_changed:
        await run.main.notice(
            "AGENT_CHANGED", "the agent was changed while this run was stopped; it goes on as it is now"
        )
    for code, message in run.notices:
        await run.main.notice(code, message)
    await rollback.take_back(run, peers)
    await goal.record_goal(run, peers)
    run.delegate = run_subagent
    found = await set_up_run(run, peers)
    run.main.brief = await system_message.make_prompt_context(run, peers, found)
    run.main.enter(run.agent.primary)
    talk = Conversation(run.main, peers, found.tools)
    if compact_command.is_compact_command(run.query.message):
        run.main.stage = compact_command.STAGE
        return await compact_command.run_compaction(talk)
    return await RUNNERS[run.agent.mode](talk)


async def _finish(run: Run, line: memory_pb2.RunLine) -> None:
    unheard = run.steering.close()
    line.usage.CopyFrom(run.usage)
    run.close(line, CANCELLED_RESULT if line.state == "cancelled" else INTERRUPTED_RESULT)
    try:
        failure = await _commit_end(run, unheard)
    except asyncio.CancelledError:
        run.feed.cut()  # the process ends and memory does not answer
        raise
    if failure is not None and (failure.retriable or run.log.is_lost):
        # What the log does not have did not happen: whoever takes the run over comes to its end again.
        run.feed.cut()
        return
    if failure is not None:
        run.unstored_end = failure
        line = memory_pb2.RunLine(state="failed", error=failure, usage=run.usage)
    _publish_end(run, line)
    log.info("run ended", run_id=run.id, state=line.state, error=line.error.code or None, seq=run.feed.seq)


async def _commit_end(run: Run, unheard: list[Steer]) -> common_pb2.Failure | None:
    """Have asked what its model did not hear, and commit the run's last lines; why not, when they could not be."""
    assert run.ask_next is not None, "set when the run entered"
    failure: common_pb2.Failure | None = None
    for delay_s in FINISH_RETRY_DELAYS_S:
        await asyncio.sleep(delay_s)
        try:
            while unheard:
                await run.ask_next(run, unheard[0])
                del unheard[0]
            await run.flush()
        except HeadraceError as error:
            failure = to_failure(error)
            log.warning("last lines not committed", run_id=run.id, reason=error.reason)
            if not error.retriable:
                break
        except Exception:
            # The supervisor again: memory's bug must not end all other runs.
            log.exception("last lines not committed", run_id=run.id)
            return INTERNAL
        else:
            return None
    return failure


def _publish_end(run: Run, line: memory_pb2.RunLine) -> None:
    metrics.ENDED.labels(line.state, line.error.code).inc()
    tracing.ended(line)
    run.feed.release_all()
    if line.state == "completed":
        run.state = "completed"
        run.main.publish("run_complete", run_id=run.id, finish_reason=line.finish_reason, usage=line.usage)
    elif line.state == "cancelled":
        run.state = "cancelled"
        run.main.publish("run_cancel", run_id=run.id, usage=line.usage)
    else:
        run.state = "failed"
        run.main.publish("run_error", run_id=run.id, error=line.error, usage=line.usage)


def _failed(error: HeadraceError) -> memory_pb2.RunLine:
    return memory_pb2.RunLine(state="failed", error=to_failure(error))
