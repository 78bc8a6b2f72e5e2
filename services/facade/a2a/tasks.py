"""A2A's operations on tasks, which are the runs of one agent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

import grpc

from headrace.errors import NotFound
from headrace.run_states import State
from headrace.v1 import agent_pb2, memory_pb2, memory_pb2_grpc
from services.facade.a2a.message import SentMessage, answer_gate, find_context, is_uuid, make_query
from services.facade.a2a.protocol import BAD_PARAMS, NOT_CANCELABLE, UNSUPPORTED, A2aError
from services.facade.a2a.push_configs import PushConfigs
from services.facade.a2a.task_view import LIVE, STATES, TaskView
from services.facade.adapters.attachments.uploads import Uploads
from services.facade.adapters.run_pipe import RunTaker, UntilBegun, UntilOver, pipe_run
from services.facade.adapters.runs import AdapterRuns
from services.facade.peer_calls import call_peer
from services.runtime.clock import format_time

PAGE, PAGE_MAX = 50, 100

CHATS_MAX = 20
"""Number of newest chats searched by ListTasks without a context."""


class Tasks:
    def __init__(
        self, orchestrator: grpc.aio.Channel, memory: grpc.aio.Channel, uploads: Uploads, push: PushConfigs
    ) -> None:
        # Any: the stubs' types know the RPCs of synchronous channels too.
        self._memory: Any = memory_pb2_grpc.MemoryServiceStub(memory)
        self._runs = AdapterRuns(orchestrator)
        self._uploads = uploads
        self._push = push

    async def send_message(self, agent_key: str, sent: SentMessage, view: TaskView) -> None:
        """Start a run or answer a waiting one, and follow it until it ends or waits.

        If the message `returns_immediately`, follow it only until the task exists.
        """
        if sent.task_id:
            await self._answer(agent_key, sent, view)
            if sent.returns_immediately or view.is_waiting:
                return
            await self._follow(lambda: self._runs.attach_run(sent.task_id, view.fold.last_seq), view, sent)
            return
        if sent.push is not None:
            await self._push.check(sent.push)
        query = make_query(agent_key, replace(sent, context_id=find_context(agent_key, sent)))
        _, references = await self._uploads.store_attachments(sent.attachments, query.chat_id, query.chat_key)
        query.references.extend(references)
        await self._follow(lambda: self._runs.start_run(query), view, sent)

    async def _answer(self, agent_key: str, sent: SentMessage, view: TaskView) -> None:
        run = await self._runs.get_run(sent.task_id, [agent_key])
        if sent.context_id and sent.context_id != run.chat_id:
            raise A2aError(BAD_PARAMS, "message.contextId: is not that of the task")
        if run.state not in LIVE:
            raise A2aError(UNSUPPORTED, f"the task has ended ({run.state}); send a message with its contextId alone")
        seen = TaskView()
        await self._runs.look(run, seen, seen)
        if not seen.gates:
            raise A2aError(UNSUPPORTED, "the task waits for no message; its agent is at work")
        answer = answer_gate(run.run_id, seen.gates, sent)
        if sent.push is not None:
            await self._push.put(run.run_id, sent.push)
        answered = await self._runs.answer_run([answer])
        # The view continues where this look ended; earlier events belong to the earlier message.
        view.adopt(seen, answered)

    async def _follow(self, open_call: Callable[[], Any], view: TaskView, sent: SentMessage) -> None:
        taker = UntilBegun(view) if sent.returns_immediately else view
        if sent.push is None or sent.task_id:
            await pipe_run(open_call(), taker)
            return
        configuring = _PushedRun(view, taker, partial(self._push.put, config=sent.push))
        try:
            await pipe_run(open_call(), configuring)
        finally:
            await configuring.finish()

    async def subscribe(self, agent_key: str, task_id: Any, view: TaskView) -> None:
        """Follow a task to its end, also while it waits, since another client may answer."""
        run = await self.find_run(agent_key, task_id)
        if run.state not in LIVE:
            raise A2aError(UNSUPPORTED, f"the task has ended ({run.state}); GetTask has it")
        view.stays_while_waiting = True
        await pipe_run(self._runs.attach_run(run.run_id), view)

    async def get_task(self, agent_key: str, task_id: Any, base_url: str) -> dict[str, Any]:
        return await self._build_task(await self.find_run(agent_key, task_id), base_url)

    async def cancel_task(self, agent_key: str, task_id: Any, base_url: str) -> dict[str, Any]:
        run = await self.find_run(agent_key, task_id)
        if run.state not in LIVE:
            raise A2aError(NOT_CANCELABLE, f"the task has ended ({run.state})")
        await self._runs.cancel_run(run.run_id)
        view = TaskView(base_url=base_url)
        await self._runs.look(run, view, UntilOver(view))
        return view.build_task() if view.fold.run_id else _summarize(await self.find_run(agent_key, task_id))

    async def list_tasks(self, agent_key: str, params: dict[str, Any], base_url: str) -> dict[str, Any]:
        """Return one page of tasks, newest first, from a context or from the caller's newest contexts."""
        size = params.get("pageSize") or PAGE
        if not isinstance(size, int) or not 1 <= size <= PAGE_MAX:
            raise A2aError(BAD_PARAMS, f"pageSize: must be 1 to {PAGE_MAX}")
        found = await self._find_runs(agent_key, params)
        token, ids = params.get("pageToken") or "", [run.run_id for run in found]
        if token and token not in ids:
            raise A2aError(BAD_PARAMS, "pageToken: must be the nextPageToken of an answer")
        first = ids.index(token) + 1 if token else 0
        shown = found[first : first + size]
        if params.get("includeArtifacts") is True:
            tasks = [await self._build_task(run, base_url) for run in shown]
        else:
            tasks = [_summarize(run) for run in shown]
        next_token = shown[-1].run_id if first + size < len(found) else ""
        return {"tasks": tasks, "nextPageToken": next_token, "pageSize": size, "totalSize": len(found)}

    async def _find_runs(self, agent_key: str, params: dict[str, Any]) -> list[agent_pb2.Run]:
        """Return the runs that match a ListTasks request, the most recently changed first."""
        context_id, after_ms = params.get("contextId") or "", _read_time(params.get("statusTimestampAfter"))
        if not isinstance(context_id, str):
            raise A2aError(BAD_PARAMS, "contextId: must be one that this server has given")
        chats = [context_id]
        if not context_id:
            reply = await call_peer(self._memory.ListChats, memory_pb2.ListChatsRequest(page_size=CHATS_MAX))
            chats = [chat.chat_id for chat in reply.chats if chat.first_agent_key == agent_key]
        runs = [run for chat_id in chats if is_uuid(chat_id) for run in await self._runs.list_runs(chat_id)]
        found = [run for run in runs if run.agent_key == agent_key and run.updated_at > after_ms]
        if state := params.get("status"):
            found = [run for run in found if STATES[run.state] == state]
        return sorted(found, key=lambda run: run.updated_at, reverse=True)

    async def find_run(self, agent_key: str, task_id: Any) -> agent_pb2.Run:
        if not is_uuid(task_id):
            raise NotFound("no task has this id")
        return await self._runs.get_run(task_id, [agent_key])

    async def _build_task(self, run: agent_pb2.Run, base_url: str) -> dict[str, Any]:
        """Return a task in its current state; while it is working, without artifacts, which may still change."""
        if run.state in (State.QUEUED, State.RUNNING):
            return _summarize(run)
        view = TaskView(base_url=base_url)
        await self._runs.look(run, view, view)
        return view.build_task() if view.fold.run_id else _summarize(run)


class _PushedRun:
    """Forwards a run's events to another taker and stores the push config as soon as the run's id is known."""

    def __init__(self, view: TaskView, taker: RunTaker, configure: Callable[[str], Awaitable[object]]) -> None:
        self._view, self._taker, self._configure = view, taker, configure
        self._configuring: asyncio.Task[object] | None = None
        self.wait_until_ready = taker.wait_until_ready

    @property
    def is_over(self) -> bool:
        return self._taker.is_over

    @property
    def is_waiting(self) -> bool:
        return self._taker.is_waiting

    def take(self, delta: agent_pb2.AgentDelta) -> bool:
        is_ready = self._taker.take(delta)
        if self._configuring is None and self._view.fold.run_id:
            self._configuring = asyncio.ensure_future(self._configure(self._view.fold.run_id))
        return is_ready

    async def finish(self) -> None:
        """Wait until the config is stored, even if the caller has left; raises the error of storing it."""
        if self._configuring is not None:
            await self._configuring


def _read_time(given: Any) -> float:
    """Return a Timestamp in protobuf's JSON form as Unix milliseconds; 0 if none is given."""
    if given is None:
        return 0
    try:
        at = datetime.fromisoformat(given)
    except (TypeError, ValueError):
        at = None
    if at is None or at.tzinfo is None:
        raise A2aError(BAD_PARAMS, "statusTimestampAfter: must be a time such as 2026-11-26T12:00:00Z")
    return at.timestamp() * 1000


def _summarize(run: agent_pb2.Run) -> dict[str, Any]:
    status = {"state": STATES[run.state], "timestamp": format_time(run.updated_at)}
    return {"id": run.run_id, "contextId": run.chat_id, "status": status}
