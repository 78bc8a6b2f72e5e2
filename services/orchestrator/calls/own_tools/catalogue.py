"""The orchestrator's own tools, which work on the run and its session state.

To add one, add a row to OWN, and to FUNCTIONS if its kind is `own`.
"""

from __future__ import annotations

from headrace.v1 import tools_pb2
from services.orchestrator.calls.own_tools import planning, recall, subagent
from services.orchestrator.calls.own_tools.planning import READ_TODOS, WRITE_TODOS, read_todos, write_todos
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.people.forms import ASK_HUMAN
from services.orchestrator.run.answers.call import Call, violation
from services.orchestrator.run.scope import Scope

QUESTION = tools_pb2.Tool(
    name=ASK_HUMAN,
    description="Ask the user something that only they can decide or know, and wait for the answer.",
    parameters="""{"type":"object","properties":{
"question":{"type":"string","minLength":1},
"context":{"type":"string","description":"What the user should know to answer"},
"choices":{"type":"array","items":{"type":"string"},"maxItems":20},
"default":{"type":"string","description":"The answer when nobody answers and required is false"},
"required":{"type":"boolean"}},
"required":["question"],"additionalProperties":false}""",
    kind="frontend",
    tier="core",
    effect="read",
)

FUNCTIONS = {
    "todo_write": write_todos,
    "todo_read": read_todos,
    recall.READ_HISTORY.name: recall.read_history,
    recall.READ_RESULT.name: recall.read_result,
    subagent.NAME: subagent.execute_subagent,
    **recall.FUNCTIONS,
    **planning.FUNCTIONS,
}

OWN = (WRITE_TODOS, READ_TODOS, subagent.TOOL, QUESTION, *recall.HISTORY_TOOLS)

NAMES = frozenset({tool.name.casefold() for tool in (*OWN, *recall.FACT_TOOLS)})
"""Names in lower case. A tenant's agent needs no grant for these tools, because they reach only its run and user."""


async def recall_call(scope: Scope, peers: Peers, call: Call, result: str) -> None:
    """Reapply the effect of a logged call on the run's own state, without publishing."""
    if call.name.casefold() == subagent.NAME:
        subagent.recall_subagent(scope, call, result)
    function = planning.FUNCTIONS.get(call.name.casefold())
    if function is not None and not violation(call):
        await function(scope, peers, call)


async def execute_own(scope: Scope, peers: Peers, call: Call) -> tools_pb2.ToolOutcome:
    return await FUNCTIONS[call.name.casefold()](scope, peers, call)
