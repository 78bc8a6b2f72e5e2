"""One run from accepted to its terminal event, which comes exactly once, whatever fails."""

from __future__ import annotations

import asyncio

import structlog

from headrace.errors import HeadraceError, Interrupted, to_failure
from headrace.v1 import common_pb2, memory_pb2
from services.orchestrator import briefing
from services.orchestrator.conversation import Conversation
from services.orchestrator.oneshot import oneshot
from services.orchestrator.peers import Peers
from services.orchestrator.react import react
from services.orchestrator.run import Run, Stopped

MODES = {"ONESHOT": oneshot, "REACT": react}

CANCELLED_RESULT = '{"ok":false,"error":"cancelled"}'
INTERRUPTED_RESULT = '{"ok":false,"error":"interrupted"}'
"""What calls get that were asked for and whose run ended before their results."""

FINISH_RETRY_DELAYS_S = (0.0, 0.2, 1.0, 3.0)
"""When the last lines are tried again: memory may be restarting. After that recovery ends the run."""

INTERNAL = common_pb2.Failure(code="INTERNAL", message="internal error", retriable=False)

log = structlog.get_logger()


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
        run.main.publish("chat_start", chat_id=run.chat_id, chat_name=chat_name)
    run.main.publish("run_start", run_id=run.id, chat_id=run.chat_id, agent_key=run.agent.key)
    line = await _outcome(run, peers)
    await _finish(run, line)


async def _outcome(run: Run, peers: Peers) -> memory_pb2.RunLine:
    """Do the work and say how it ended."""
    run.state = "running"
    run.spending.start_clock()
    out_of_time: HeadraceError | None = None
    run.work = asyncio.create_task(_work(run, peers))
    try:
        if run.stop == "now" or run.stop_error is not None:
            run.work.cancel()
        done, _ = await asyncio.wait({run.work}, timeout=run.spending.timeout_s)
        if not done:
            out_of_time = run.out_of_time()
            await asyncio.wait({run.work})
    finally:
        run.work.cancel()
    try:
        return memory_pb2.RunLine(state="completed", finish_reason=await run.work)
    except (asyncio.CancelledError, Stopped):
        error = run.stop_error or out_of_time
        return _failed(error) if error is not None else memory_pb2.RunLine(state="cancelled")
    except HeadraceError as error:
        # What a peer says of a call that a cancel has just broken off is not why the run ended.
        return memory_pb2.RunLine(state="cancelled") if run.stop == "now" else _failed(error)
    except Exception:
        # The supervisor of a run: a bug in one run must end it honestly and leave the others alone.
        log.exception("run failed", run_id=run.id)
        return memory_pb2.RunLine(state="failed", error=INTERNAL)


async def _work(run: Run, peers: Peers) -> str:
    tools = await briefing.tools(run, peers)
    run.main.system = await briefing.system(run, peers, tools)
    return await MODES[run.agent.mode](Conversation(run.main, peers, tools))


async def _finish(run: Run, line: memory_pb2.RunLine) -> None:
    line.usage.CopyFrom(run.usage)
    run.close(line, CANCELLED_RESULT if line.state == "cancelled" else INTERRUPTED_RESULT)
    try:
        failure = await _commit_end(run)
    except asyncio.CancelledError:
        # The process ends and memory does not answer.
        error = to_failure(Interrupted("the service was stopped before the run's end was stored; ask again"))
        _publish_end(run, memory_pb2.RunLine(state="failed", error=error, usage=run.usage))
        raise
    if failure is not None:
        # What the log does not have did not happen: recovery will end the run as interrupted, a failure too.
        line = memory_pb2.RunLine(state="failed", error=failure, usage=run.usage)
    _publish_end(run, line)
    log.info("run ended", run_id=run.id, state=line.state, error=line.error.code or None, seq=run.feed.seq)


async def _commit_end(run: Run) -> common_pb2.Failure | None:
    """Commit the run's last lines; why not, when they could not be."""
    failure: common_pb2.Failure | None = None
    for delay_s in FINISH_RETRY_DELAYS_S:
        await asyncio.sleep(delay_s)
        try:
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
