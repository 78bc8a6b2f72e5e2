"""Sends a run's events to a caller."""

from __future__ import annotations

from typing import TypeAlias

from headrace.v1 import agent_pb2
from services.orchestrator.lifecycle.live_runs import OwnedElsewhere, ParkedStream, RepeatedQuery, StartResult
from services.orchestrator.lifecycle.runs import Runs
from services.orchestrator.peers import stored_runs
from services.orchestrator.peers.stored_runs import ending_with_access
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.run import Run
from services.runtime.rpc.push_stream import MessageSink

Stream: TypeAlias = int | ParkedStream
"""What has become of a stream: how many events it had, or where it is to go on."""


async def follow_query(
    runs: Runs, peers: Peers, request: agent_pb2.QueryRequest, out: MessageSink, _: Run | None
) -> Stream | RepeatedQuery | OwnedElsewhere:
    started = await runs.start(request)
    if not isinstance(started, Run) or request.on_disconnect != "cancel":
        return await _follow_started(started, peers, out)
    try:
        return await _follow_started(started, peers, out)
    finally:
        if not (started.feed.ended or started.feed.is_cut):
            started.control.cancel()


async def follow_compaction(
    runs: Runs, peers: Peers, request: agent_pb2.CompactChatRequest, out: MessageSink, _: Run | None
) -> Stream | RepeatedQuery | OwnedElsewhere:
    return await _follow_started(await runs.compact(request.chat_id), peers, out)


async def _follow_started(
    started: StartResult, peers: Peers, out: MessageSink
) -> Stream | RepeatedQuery | OwnedElsewhere:
    if not isinstance(started, Run):
        return started
    if started.chat.owner in ("", started.identity.user):
        return await _follow_feed(started, 0, out)
    async with ending_with_access(peers, started.id):
        return await _follow_feed(started, 0, out)


async def _follow_feed(run: Run, last_seq: int, out: MessageSink) -> Stream:
    followed = await run.feed.follow(last_seq, out)
    return ParkedStream(run.id, followed.last_seq, followed.sent) if run.feed.is_parked else followed.sent


async def follow_run(peers: Peers, request: agent_pb2.AttachRequest, out: MessageSink, run: Run | None) -> Stream:
    if run is not None:
        return await _follow_feed(run, request.last_seq, out)
    events = await stored_runs.get_events(peers, request.run_id, request.last_seq)
    for event in events:
        if not out.send(event.SerializeToString()):
            await out.wait_until_drained()
    return len(events)
