"""The tools for a plan's tasks, and for a context's todos."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec

from headrace.v1 import tools_pb2
from services.orchestrator.calls import results
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run import session_state
from services.orchestrator.run.answers.call import Call
from services.orchestrator.run.plan import STATUSES, ActivePlan, PlanProblem, Task
from services.orchestrator.run.scope import Scope
from services.orchestrator.run.scope_parts import Todo

TASKS_MAX = 50
"""Maximum tasks added per call; plans are for people to read."""

DESCRIPTION_CHARS_MAX = 4000

_STATUS = '"status":{"type":"string","enum":[' + ",".join(f'"{status}"' for status in STATUSES) + "]}"
_DESCRIPTION = f'"description":{{"type":"string","minLength":1,"maxLength":{DESCRIPTION_CHARS_MAX}}}'
_COMPOSITE = '"composite":{"type":"boolean","description":"Whether it is to be split into smaller tasks first"}'
_GROUP = '"group":{"type":"string","maxLength":64,"description":"Neighbours of one group may run at the same time"}'
_TASK_ID = '"taskId":{"type":"string","maxLength":64}'


def _make_tool(name: str, description: str, properties: str, *required: str) -> tools_pb2.Tool:
    names = ",".join(f'"{name}"' for name in required)
    schema = f'{{"type":"object","properties":{{{properties}}},"required":[{names}],"additionalProperties":false}}'
    return tools_pb2.Tool(name=name, description=description, parameters=schema, kind="own", effect="idempotent")


def _make_task_schema(properties: str, *, least: int) -> str:
    item = f'{{"type":"object","properties":{{{properties}}},"required":["description"],"additionalProperties":false}}'
    return f'"tasks":{{"type":"array","minItems":{least},"maxItems":{TASKS_MAX},"items":{item}}}'


ADD = _make_tool(
    "_plan_add_tasks_",
    "Add tasks to the plan, in the order in which they are to be done. Answers with their ids.",
    _make_task_schema(f"{_DESCRIPTION},{_STATUS},{_GROUP},{_COMPOSITE}", least=1),
    "tasks",
)

UPDATE = _make_tool(
    "_plan_update_task_",
    "Say how your task stands: completed, failed, canceled or skipped end it.",
    f"{_TASK_ID},{_STATUS},{_DESCRIPTION}",
    "taskId",
    "status",
)

GET = _make_tool("_plan_get_tasks_", "Read the plan: all tasks, with their status.", "")

RESTATE = _make_tool(
    "_plan_restate_tasks_",
    "State what is left to be done now: keep a task by its taskId, change its description, leave it out, add or split"
    " tasks. An empty list says that nothing is left.",
    _make_task_schema(f"{_TASK_ID},{_DESCRIPTION},{_COMPOSITE}", least=0),
    "tasks",
)


class _TaskArguments(msgspec.Struct):
    description: str
    status: Literal["init", "in_progress", "completed", "failed", "canceled", "skipped"] = "init"
    group: str | None = None
    composite: bool | None = None
    taskId: str = ""


class _TaskListArguments(msgspec.Struct):
    tasks: list[_TaskArguments]


class _UpdateArguments(msgspec.Struct):
    taskId: str
    status: str
    description: str = ""


async def _add_tasks(planned: ActivePlan, scope: Scope, call: Call) -> tools_pb2.ToolOutcome:
    added = await planned.add(_parse_tasks(call), call.call_id)
    return results.make_success(tasks=[_describe_task(task) for task in added])


async def _restate_tasks(planned: ActivePlan, scope: Scope, call: Call) -> tools_pb2.ToolOutcome:
    remaining = await planned.restate(_parse_tasks(call), call.call_id)
    return results.make_success(tasks=[_describe_task(task) for task in remaining])


async def _update_task(planned: ActivePlan, scope: Scope, call: Call) -> tools_pb2.ToolOutcome:
    given = msgspec.json.decode(call.effective, type=_UpdateArguments)
    task = planned.plan.find(given.taskId)
    if task.task_id != scope.ids.task_id:
        raise PlanProblem(f"task {task.task_id} is not yours; yours is {scope.ids.task_id}")
    await planned.mark(task, given.status, given.description)
    return results.make_success(**_describe_task(task))


async def _get_tasks(planned: ActivePlan, scope: Scope, call: Call) -> tools_pb2.ToolOutcome:
    return results.make_success(tasks=[_describe_task(task) for task in planned.plan.tasks])


_CHANGES: dict[str, Callable[[ActivePlan, Scope, Call], Awaitable[tools_pb2.ToolOutcome]]] = {
    ADD.name: _add_tasks,
    UPDATE.name: _update_task,
    GET.name: _get_tasks,
    RESTATE.name: _restate_tasks,
}

PLAN_NAMES = frozenset(_CHANGES)
"""No other tool may have these names."""


async def _execute_plan_call(scope: Scope, peers: Peers, call: Call) -> tools_pb2.ToolOutcome:
    assert scope.planned is not None, "only scopes of a plan have its tools"
    try:
        return await _CHANGES[call.name.casefold()](scope.planned, scope, call)
    except PlanProblem as problem:
        return results.make_failure("INVALID_ARGUMENTS", str(problem))


FUNCTIONS = dict.fromkeys(PLAN_NAMES, _execute_plan_call)


def _parse_tasks(call: Call) -> list[Task]:
    tasks = msgspec.json.decode(call.effective, type=_TaskListArguments).tasks
    return [
        Task(
            task_id=task.taskId,
            description=task.description,
            status=task.status,
            group=task.group,
            composite=task.composite,
        )
        for task in tasks
    ]


def _describe_task(task: Task) -> dict[str, str]:
    return {"taskId": task.task_id, "description": task.description, "status": task.status}


TODOS_MAX = 100

CONTENT_CHARS_MAX = 1000
"""Maximum characters of a todo; every request of the run includes the list."""

_LIST = f"""{{"type":"object","properties":{{"todos":{{"type":"array","maxItems":{TODOS_MAX},"items":{{"type":"object",
"properties":{{"content":{{"type":"string","minLength":1,"maxLength":{CONTENT_CHARS_MAX}}},
"status":{{"type":"string","enum":["pending","in_progress","completed"]}},
"id":{{"type":"string","maxLength":64}},"priority":{{"type":"string","maxLength":32}}}},
"required":["content","status"],"additionalProperties":false}}}}}},"required":["todos"],"additionalProperties":false}}"""

WRITE_TODOS = tools_pb2.Tool(
    name="todo_write",
    description="Replace your list of things to do. Keep it true: at most one entry is in_progress.",
    parameters=_LIST,
    kind="own",
    tier="core",
    effect="idempotent",
)

READ_TODOS = tools_pb2.Tool(
    name="todo_read",
    description="Read your list of things to do.",
    parameters='{"type":"object","properties":{},"additionalProperties":false}',
    kind="own",
    tier="core",
    effect="read",
)


class _TodoArguments(msgspec.Struct):
    todos: list[Todo]


async def write_todos(scope: Scope, peers: Peers, call: Call) -> tools_pb2.ToolOutcome:
    todos = msgspec.json.decode(call.effective, type=_TodoArguments).todos
    if sum(todo.status == "in_progress" for todo in todos) > 1:
        return results.make_failure("INVALID_ARGUMENTS", "todos: at most one may be in_progress")
    for number, todo in enumerate(todos, start=1):
        todo.id = todo.id or str(number)
    await session_state.change(scope, peers, todos=msgspec.json.encode(todos))
    scope.attention.todos = todos
    return results.make_success(todos=msgspec.to_builtins(todos))


async def read_todos(scope: Scope, peers: Peers, call: Call) -> tools_pb2.ToolOutcome:
    scope.attention.todos = (await session_state.load(scope, peers)).read("todos", list[Todo], [])
    return results.make_success(todos=msgspec.to_builtins(scope.attention.todos))
