"""Stored runs that are not live here, and streams that end when their chat is no longer shared."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager

import structlog

from headrace.errors import HeadraceError, LogDamaged, NotFound, OutOfRange, Overloaded, PermissionDenied
from headrace.run_states import STATES_BY_EVENT, State
from headrace.v1 import agent_pb2, memory_pb2
from services.orchestrator.peers.stubs import Peers
from services.runtime.auth.access import PARTICIPATING, RUN_ONLY
from services.runtime.auth.identity import Identity, acting_as, require_identity

log = structlog.get_logger()


async def get_chat(peers: Peers, request: memory_pb2.GetChatRequest) -> memory_pb2.GetChatResponse:
    """Return a chat in which the caller participates. Raises NotFound, even for a chat that the caller may read."""
    chat = await _load_readable(peers, request)
    if not (_is_own(chat) or chat.access in PARTICIPATING):
        raise make_chat_not_found(chat.chat_id)
    return chat


async def get_run_chat(peers: Peers, user: Identity, request: memory_pb2.GetChatRequest) -> memory_pb2.GetChatResponse:
    """Return the chat of a user's run; if the user no longer participates, as its owner sees it. Raises NotFound."""
    with acting_as(user):
        try:
            return await _load_readable(peers, request)
        except NotFound:
            brief = memory_pb2.GetChatRequest(chat_id=request.chat_id, run_id=request.run_id, without_events=True)
            owner = (await _load_readable(peers, brief)).owner
    with acting_as(Identity.from_stored(user.tenant, owner)):
        return await _load_readable(peers, request)


async def find_run_of_request(peers: Peers, chat_id: str, request_id: str) -> str:
    """Return the id of the chat's run for this request id; empty if the caller cannot see one."""
    request = memory_pb2.GetChatRequest(chat_id=chat_id, request_id=request_id, without_events=True)
    try:
        return (await _load_readable(peers, request)).request_run_id
    except NotFound:
        return ""


async def check_participant(peers: Peers, chat_id: str) -> None:
    """Check that the caller may start runs in the chat.

    Raises:
        NotFound: The caller may not read it either.
        PermissionDenied: The caller may only read it.
    """
    chat = await _load_readable(peers, memory_pb2.GetChatRequest(chat_id=chat_id, without_events=True))
    if not (_is_own(chat) or chat.access in PARTICIPATING):
        raise PermissionDenied("this chat is shared with you to read, not to take part", chatId=chat_id)


async def find_chat_owner(
    peers: Peers, *, chat_id: str = "", run_id: str | None = None, shows_content: bool = False
) -> Identity:
    """Return the owner of a chat that the caller may read; if it does not exist, the caller's own identity.

    With `shows_content` memory records the caller's access to another user's chat.

    Raises:
        NotFound: The chat is no longer shared with the caller, who still has a run in it.
    """
    caller = require_identity()
    try:
        request = memory_pb2.GetChatRequest(
            chat_id=chat_id, run_id=run_id, without_events=True, shows_content=shows_content
        )
        chat = await _load_readable(peers, request)
    except NotFound:
        return caller
    if chat.access == RUN_ONLY:
        raise make_run_not_found(run_id or "")
    # A caller's own chat stays the caller's, with roles and scopes.
    return caller if _is_own(chat) else Identity.from_stored(caller.tenant, chat.owner)


async def _load_readable(peers: Peers, request: memory_pb2.GetChatRequest) -> memory_pb2.GetChatResponse:
    return await peers.memory.GetChat(request)


def _is_own(chat: memory_pb2.GetChatResponse) -> bool:
    # Memory of an earlier version says no owner, and shows own chats alone.
    return chat.owner in ("", require_identity().user)


def make_chat_not_found(chat_id: str) -> NotFound:
    """Create memory's own error, which is also used for other users' chats."""
    return NotFound(f"chat {chat_id} does not exist", chatId=chat_id)


def make_run_not_found(run_id: str) -> NotFound:
    return NotFound(f"run {run_id} does not exist", runId=run_id)


def make_run_reverted(run_id: str) -> NotFound:
    """Create the error for a run that a revert has removed."""
    return NotFound(f"run {run_id} was reverted", runId=run_id)


async def get_events(peers: Peers, run_id: str, last_seq: int) -> list[agent_pb2.AgentDelta]:
    """Return an ended run's events after `last_seq`.

    Raises:
        NotFound: The run does not exist or was reverted.
        OutOfRange: `last_seq` is beyond the run's end.
        Overloaded: As in `check_not_unfinished`.
        LogDamaged: The run has no end, and its log accepts none.
    """
    chat = await get_chat(peers, memory_pb2.GetChatRequest(run_id=run_id))
    if not chat.events:
        raise make_run_reverted(run_id)
    if not has_ended(chat):
        await check_not_unfinished(peers, run_id)
        raise LogDamaged(f"run {run_id} has no end, and its chat's log takes none", runId=run_id)
    last = chat.events[-1].seq
    if last_seq > last:
        raise OutOfRange(f"lastSeq {last_seq} is beyond the run's last event {last}", lastSeq=last)
    return [event for event in chat.events if event.seq > last_seq]


async def list_events(peers: Peers, run_id: str, last_seq: int) -> list[agent_pb2.AgentDelta]:
    """Return a run's events after `last_seq` in history, even if its end was reverted. Raises NotFound."""
    chat = await get_chat(peers, memory_pb2.GetChatRequest(run_id=run_id))
    return [event for event in chat.events if event.seq > last_seq]


async def check_not_unfinished(peers: Peers, run_id: str) -> None:
    """Check again that a run without an end in its log, and without an owner, is not unfinished.

    Raises:
        Overloaded: The run continues, because the database lost its end in a fail-over.
    """
    if any(entry.run_id == run_id for entry in await list_unfinished_of_chat(peers, run_id)):
        raise Overloaded(f"run {run_id} lost its end and continues; try again", retry_after_s=1.0)


async def list_unfinished(peers: Peers, *, without_owner: bool = False) -> list[memory_pb2.UnfinishedRun]:
    """List unfinished runs, oldest first; `without_owner` limits them to those that were unowned a moment ago."""
    request = memory_pb2.ListUnfinishedRunsRequest(without_owner=without_owner, may_lag=without_owner)
    return await _list_unfinished(peers, request)


async def list_unfinished_of_chat(peers: Peers, run_id: str) -> list[memory_pb2.UnfinishedRun]:
    """List the unfinished runs of the run's chat, oldest first; none if the run is another caller's."""
    return await _list_unfinished(peers, memory_pb2.ListUnfinishedRunsRequest(run_id=run_id))


async def _list_unfinished(
    peers: Peers, request: memory_pb2.ListUnfinishedRunsRequest
) -> list[memory_pb2.UnfinishedRun]:
    reply = await peers.memory.ListUnfinishedRuns(request)
    return list(reply.runs)


def has_ended(chat: memory_pb2.GetChatResponse) -> bool:
    return bool(chat.events) and chat.events[-1].WhichOneof("payload") in STATES_BY_EVENT


async def get_run(peers: Peers, run_id: str) -> agent_pb2.Run:
    """Raises NotFound."""
    chat = await get_chat(peers, memory_pb2.GetChatRequest(run_id=run_id))
    runs = fold_runs(chat.events)
    if not runs:
        raise make_run_reverted(run_id)
    return runs[-1]


def fold_runs(events: Iterable[agent_pb2.AgentDelta]) -> list[agent_pb2.Run]:
    """Fold events into runs, oldest first; a run without an end is `waiting` while one of its gates is open, else
    `running`."""
    runs: list[agent_pb2.Run] = []
    asked_at, chat_id, user = 0, "", ""
    open_gates: set[str] = set()
    for event in events:
        kind = event.WhichOneof("payload") or ""
        if kind == "request_query":
            asked_at, chat_id, user = event.timestamp, event.request_query.chat_id, event.request_query.by
        elif kind == "run_start":
            start = event.run_start
            runs.append(
                agent_pb2.Run(
                    run_id=start.run_id,
                    chat_id=chat_id,
                    agent_key=start.agent_key,
                    state=State.RUNNING,
                    created_at=asked_at,
                    agent_version=start.agent_version if start.HasField("agent_version") else None,
                    agent_version_hash=start.agent_version_hash if start.HasField("agent_version_hash") else None,
                    user=user,
                )
            )
            open_gates = set()
        elif runs and kind in ("gate_open", "gate_close"):
            (open_gates.add if kind == "gate_open" else open_gates.discard)(getattr(event, kind).gate_id)
            runs[-1].state = State.WAITING if open_gates else State.RUNNING
        elif runs and kind in STATES_BY_EVENT:
            end = getattr(event, kind)
            runs[-1].state = STATES_BY_EVENT[kind]
            runs[-1].usage.CopyFrom(end.usage)
            if kind == "run_complete":
                runs[-1].finish_reason = end.finish_reason
            elif kind == "run_error":
                runs[-1].error.CopyFrom(end.error)
        if runs and kind != "request_query":
            runs[-1].updated_at = event.timestamp
    return runs


LOOK_S = 2.0
"""Time between access checks: one small request to memory per stream of a chat of another user."""


@asynccontextmanager
async def ending_with_access(peers: Peers, *, run_id: str = "", chat_id: str = "") -> AsyncGenerator[None]:
    """Run the block as long as the caller may read the chat, or the run's chat; then raise NotFound.

    While memory is unavailable, no block is ended.
    """
    ending = asyncio.timeout(None)
    watch = asyncio.create_task(_watch_access(peers, run_id, chat_id, ending))
    try:
        async with ending:
            yield
    except TimeoutError:
        if ending.expired():
            raise make_chat_not_found(chat_id) if chat_id else make_run_not_found(run_id) from None
        raise
    finally:
        watch.cancel()
        await asyncio.wait([watch])


async def _watch_access(peers: Peers, run_id: str, chat_id: str, ending: asyncio.Timeout) -> None:
    loop, caller = asyncio.get_running_loop(), require_identity()
    while True:
        await asyncio.sleep(LOOK_S)
        try:
            if await find_chat_owner(peers, chat_id=chat_id, run_id=run_id or None) != caller:
                continue
        except NotFound:
            pass
        except HeadraceError as error:
            log.warning("access not known", run_id=run_id, chat_id=chat_id, reason=error.reason)
            continue
        log.info("reader ended", run_id=run_id, chat_id=chat_id)
        ending.reschedule(loop.time())
        return
