"""Tasks: runs to which a client returns by id; the task id is the run id.

Since 2026-07-28 tasks are an extension
(https://modelcontextprotocol.github.io/ext-tasks/specification/2026-07-28/tasks); in 2025-11-25 they are part
of the protocol. The facade keeps no state: a task is its run, on any replica and after any crash.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import grpc

from headrace.errors import InvalidRequest, NotFound
from headrace.run_states import LIVE_STATES, State
from headrace.v1 import agent_pb2, memory_pb2, memory_pb2_grpc
from services.facade.adapters.gate_answers import Answer, parse_gate_ref
from services.facade.adapters.run_pipe import UntilBegun, UntilOver, UntilQuiet, pipe_run
from services.facade.adapters.runs import AdapterRuns
from services.facade.mcp_server.elicitation import read_response
from services.facade.mcp_server.protocol import BAD_PARAMS, NO_CAPABILITY, NO_METHOD, TASKS, McpError, Message
from services.facade.mcp_server.run_view import RunView
from services.facade.peer_calls import call_peer
from services.runtime.clock import format_time

POLL_INTERVAL_MS = 1000

CHATS_PAGE = 20
"""Number of chats per page of tasks, most recently changed first; a page lists all runs of its chats."""

RUNS_MAX = 50
"""Maximum number of tasks listed per chat, newest first."""

RELATED = "io.modelcontextprotocol/related-task"

_STATUSES: dict[str, str] = {
    State.COMPLETED: "completed",
    State.FAILED: "failed",
    State.CANCELLED: "cancelled",
    State.WAITING: "input_required",
}

_EXTENSION_METHODS = frozenset({"tasks/get", "tasks/update", "tasks/cancel"})
_CORE_METHODS = frozenset({"tasks/get", "tasks/list", "tasks/cancel", "tasks/result"})


class Tasks:
    def __init__(self, memory: grpc.aio.Channel, runs: AdapterRuns) -> None:
        # Any: the stubs' types know the RPCs of synchronous channels too.
        self._memory: Any = memory_pb2_grpc.MemoryServiceStub(memory)
        self._runs = runs

    async def create_task(self, message: Message, query: agent_pb2.QueryRequest) -> dict[str, Any]:
        """Start a run and return its task once the run is on disk and continues without the client."""
        view = RunView()
        await pipe_run(self._runs.start_run(query), UntilBegun(view))
        task = _build_task(message, await self._runs.get_run(view.fold.run_id, [query.agent_key]))
        return {"resultType": "task"} | task if message.is_modern else {"task": task}

    async def answer(self, message: Message, agent_keys: Sequence[str]) -> dict[str, Any]:
        """Answer any tasks/ method except tasks/result."""
        check_method(message)
        match message.method:
            case "tasks/list":
                return await self._list_tasks(message, agent_keys)
            case "tasks/update":
                return await self._update(message, agent_keys)
            case "tasks/cancel":
                return await self._cancel(message, agent_keys)
            case _:
                return await self._describe(message, await self.find_run(message, agent_keys))

    async def find_run(self, message: Message, agent_keys: Sequence[str]) -> agent_pb2.Run:
        task_id = message.params.get("taskId")
        try:
            if isinstance(task_id, str):
                return await self._runs.get_run(task_id, agent_keys)
        except (NotFound, InvalidRequest):
            pass
        raise McpError(BAD_PARAMS, "taskId: no task has this id")

    async def look(self, run: agent_pb2.Run) -> RunView:
        """Return a view of the whole run if it has ended, or of its events so far."""
        view = RunView()
        await self._runs.look(run, view, UntilQuiet(view))
        return view

    async def _describe(self, message: Message, run: agent_pb2.Run) -> dict[str, Any]:
        if run.state in (State.QUEUED, State.RUNNING, State.CANCELLED):
            return _build_task(message, run)
        if not message.is_modern and run.state != State.WAITING:
            return _build_task(message, run)
        view = await self.look(run)
        task = _build_task(message, run)
        if run.state != State.WAITING:
            return task | {"status": "completed", "result": {"resultType": "complete"} | view.build_result()}
        if not view.gates:
            return task | {"status": "working"}
        if not message.can_elicit:
            reason = "waits for an answer, which Headrace's own clients can give"
            return task | {"status": "working", "statusMessage": reason}
        return task | ({"inputRequests": view.build_input_requests()} if message.is_modern else {})

    async def _update(self, message: Message, agent_keys: Sequence[str]) -> dict[str, Any]:
        """Submit answers to the task's gates; unknown or closed gates are ignored."""
        run = await self.find_run(message, agent_keys)
        given = message.params.get("inputResponses")
        if not isinstance(given, dict):
            raise McpError(BAD_PARAMS, "inputResponses: must be an object of responses by the names of inputRequests")
        answers: list[Answer] = []
        for name, response in given.items():
            ref = parse_gate_ref(name)
            if not isinstance(response, dict):
                raise McpError(BAD_PARAMS, f"inputResponses: {name[:64]!r} must be an object")
            if ref is not None and ref.run_id == run.run_id:
                answers.append(read_response(ref, response, "inputResponses"))
        await self._runs.answer_run(answers)
        return {}

    async def _cancel(self, message: Message, agent_keys: Sequence[str]) -> dict[str, Any]:
        run = await self.find_run(message, agent_keys)
        has_ended = run.state not in LIVE_STATES
        if message.is_modern:
            if not has_ended:
                await self._runs.cancel_run(run.run_id)
            return {}
        if has_ended:
            raise McpError(BAD_PARAMS, f"taskId: the task has ended ({_STATUSES[run.state]})")
        await self._runs.cancel_run(run.run_id)
        view = RunView()
        await self._runs.look(run, view, UntilOver(view))
        return _build_task(message, await self.find_run(message, agent_keys)) | {"status": "cancelled"}

    async def _list_tasks(self, message: Message, agent_keys: Collection[str]) -> dict[str, Any]:
        cursor = message.params.get("cursor") or ""
        if not isinstance(cursor, str):
            raise McpError(BAD_PARAMS, "cursor: must be text")
        request = memory_pb2.ListChatsRequest(page_size=CHATS_PAGE, page_token=cursor)
        page = await call_peer(self._memory.ListChats, request)
        runs: list[agent_pb2.Run] = []
        for chat in page.chats:
            if chat.first_agent_key in agent_keys:
                runs += (await self._runs.list_runs(chat.chat_id))[:RUNS_MAX]
        tasks = [_build_task(message, run) for run in runs if run.agent_key in agent_keys]
        return {"tasks": tasks} | ({"nextCursor": page.next_page_token} if page.next_page_token else {})


def check_method(message: Message) -> None:
    """Raise McpError if the client's version lacks this method or the client has not declared the extension."""
    methods = _EXTENSION_METHODS if message.is_modern else _CORE_METHODS
    if message.method not in methods or not (message.is_modern or message.knows_tasks):
        raise McpError(NO_METHOD, f"no method {message.method[:64]!r} in this version")
    if not message.knows_tasks:
        needed = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
        raise McpError(NO_CAPABILITY, f"the client must declare the extension {TASKS}", needed)


def is_task_wanted(message: Message) -> bool:
    """Return whether to answer a call with a task: always with the extension, in 2025-11-25 only on request."""
    return message.knows_tasks and (message.is_modern or message.params.get("task") is not None)


def build_related(task_id: str) -> dict[str, Any]:
    return {RELATED: {"taskId": task_id}}


def _build_task(message: Message, run: agent_pb2.Run) -> dict[str, Any]:
    task: dict[str, Any] = {"taskId": run.run_id, "status": _STATUSES.get(run.state, "working")}
    if run.HasField("error"):
        task["statusMessage"] = f"{run.error.code}: {run.error.message}"
    task |= {"createdAt": format_time(run.created_at), "lastUpdatedAt": format_time(run.updated_at)}
    # Tasks live as long as their chats.
    ttl, interval = ("ttlMs", "pollIntervalMs") if message.is_modern else ("ttl", "pollInterval")
    return task | {ttl: None, interval: POLL_INTERVAL_MS}
