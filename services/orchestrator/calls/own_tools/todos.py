"""The tools todo_write and todo_read: a list in a context's session state."""

from __future__ import annotations

import msgspec

from headrace.v1 import tools_pb2
from services.orchestrator.calls import outcomes
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run import session_state
from services.orchestrator.run.answers.call import Call
from services.orchestrator.run.attention import Todo
from services.orchestrator.run.scope import Scope

TODOS_MAX = 100

CONTENT_CHARS_MAX = 1000
"""The list is in each request of the run."""

_LIST = f"""{{"type":"object","properties":{{"todos":{{"type":"array","maxItems":{TODOS_MAX},"items":{{"type":"object",
"properties":{{"content":{{"type":"string","minLength":1,"maxLength":{CONTENT_CHARS_MAX}}},
"status":{{"type":"string","enum":["pending","in_progress","completed"]}},
"id":{{"type":"string","maxLength":64}},"priority":{{"type":"string","maxLength":32}}}},
"required":["content","status"],"additionalProperties":false}}}}}},"required":["todos"],"additionalProperties":false}}"""

WRITE = tools_pb2.Tool(
    name="todo_write",
    description="Replace your list of things to do. Keep it true: at most one entry is in_progress.",
    parameters=_LIST,
    kind="own",
    tier="core",
    effect="idempotent",
)

READ = tools_pb2.Tool(
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
        return outcomes.make_failure("INVALID_ARGUMENTS", "todos: at most one may be in_progress")
    for number, todo in enumerate(todos, start=1):
        todo.id = todo.id or str(number)
    await session_state.change(scope, peers, todos=msgspec.json.encode(todos))
    scope.attention.todos = todos
    return outcomes.make_success(todos=msgspec.to_builtins(todos))


async def read_todos(scope: Scope, peers: Peers, call: Call) -> tools_pb2.ToolOutcome:
    scope.attention.todos = (await session_state.load(scope, peers)).read("todos", list[Todo], [])
    return outcomes.make_success(todos=msgspec.to_builtins(scope.attention.todos))
