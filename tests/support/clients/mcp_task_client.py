"""The tasks extension for MCP's Python client, which supports extensions but does not include this one."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Literal

import httpx2
from mcp.client.client import Client
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, ElicitResult, Request, RequestParams, Result

TASKS = "io.modelcontextprotocol/tasks"


class TaskHandle(Result):
    result_type: Literal["task"]
    task_id: str
    status: str
    ttl_ms: int | None
    poll_interval_ms: int


class Task(Result):
    task_id: str
    status: str
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    status_message: str | None = None
    result: CallToolResult | None = None
    input_requests: dict[str, Any] | None = None


class Params(RequestParams):
    task_id: str
    input_responses: dict[str, Any] | None = None


class GetTask(Request[Params, Literal["tasks/get"]]):
    method: Literal["tasks/get"] = "tasks/get"
    params: Params
    name_param = "taskId"


class UpdateTask(Request[Params, Literal["tasks/update"]]):
    method: Literal["tasks/update"] = "tasks/update"
    params: Params
    name_param = "taskId"


class CancelTask(Request[Params, Literal["tasks/cancel"]]):
    method: Literal["tasks/cancel"] = "tasks/cancel"
    params: Params
    name_param = "taskId"


class TaskCancelledError(Exception):
    """The task was cancelled."""


class TasksExtension(ClientExtension):
    """Polls and answers the tasks of a client's calls until they end."""

    identifier = TASKS

    def __init__(self, answer: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]] | None = None) -> None:
        """`answer` returns the response to an elicitation's parameters."""
        self._answer = answer
        self.task_ids: list[str] = []
        self.statuses: list[str] = []

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=TaskHandle, resolve=self._resolve)]

    async def _resolve(self, handle: TaskHandle, context: ClaimContext) -> CallToolResult:
        self.task_ids.append(handle.task_id)
        answered: set[str] = set()
        while True:
            task = await get_task(context.session, handle.task_id)
            if task.status not in self.statuses:
                self.statuses.append(task.status)
            if task.status == "cancelled":
                raise TaskCancelledError(handle.task_id)
            if task.result is not None:
                return task.result
            open_requests = {
                name: input_request
                for name, input_request in (task.input_requests or {}).items()
                if name not in answered
            }
            if open_requests and self._answer is not None:
                responses = {
                    name: await self._answer(input_request["params"]) for name, input_request in open_requests.items()
                }
                await update_task(context.session, handle.task_id, responses)
                answered |= open_requests.keys()
            await asyncio.sleep(0.1)


async def get_task(session: ClientSession, task_id: str) -> Task:
    return await session.send_request(GetTask(params=Params(task_id=task_id)), Task)


async def update_task(session: ClientSession, task_id: str, responses: dict[str, Any]) -> None:
    await session.send_request(UpdateTask(params=Params(task_id=task_id, input_responses=responses)), Result)


async def cancel_task(session: ClientSession, task_id: str) -> None:
    await session.send_request(CancelTask(params=Params(task_id=task_id)), Result)


async def begin_tasks(client: Client, name: str, message: str, count: int) -> list[str]:
    begin = partial(client.session.call_tool, name, {"message": message}, allow_claimed=True)
    handles = await asyncio.gather(*(begin() for _ in range(count)))
    return [handle.task_id for handle in handles if isinstance(handle, TaskHandle)]


class TaskReader:
    """Reads tasks until none is working, opening a new client whenever one breaks with its server."""

    def __init__(self, url: str, task_ids: Sequence[str]) -> None:
        self.url, self.task_ids = url, task_ids
        self.tasks: dict[str, Task] = {}
        self.breaks = 0

    async def read(self) -> list[Task]:
        while len(self.tasks) < len(self.task_ids):
            try:
                async with open_client(self.url) as client:
                    await self._read_with(client)
            except* (MCPError, OSError, httpx2.HTTPError):
                self.breaks += 1
                await asyncio.sleep(0.2)
        return [self.tasks[task_id] for task_id in self.task_ids]

    async def _read_with(self, client: Client) -> None:
        while missing := [task_id for task_id in self.task_ids if task_id not in self.tasks]:
            for task_id in missing:
                task = await get_task(client.session, task_id)
                if task.status != "working":
                    self.tasks[task_id] = task


async def refuse(context: Any, params: Any) -> Any:
    raise AssertionError("nothing is asked for outside of a task")


def open_client(url: str) -> Client:
    return Client(url, extensions=[TasksExtension()], elicitation_callback=refuse)


async def answer(context: Any, params: Any) -> ElicitResult:
    is_approval = "decision" in params.requested_schema["properties"]
    return ElicitResult(action="accept", content={"decision": "approve"} if is_approval else {"choice": "yes"})
