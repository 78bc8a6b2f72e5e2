"""The tool call_subagent: selects the agent to call; modes/subagents.py runs the task."""

from __future__ import annotations

import msgspec

from headrace.v1 import tools_pb2
from services.orchestrator.agents.definition import Definition
from services.orchestrator.calls import results
from services.orchestrator.ids import subagent_id
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.answers.call import Call
from services.orchestrator.run.scope import Scope, list_callable_agents
from services.orchestrator.run.scope_parts import SubagentReturn, SubagentTask

NAME = "call_subagent"

LOOPS_DEFAULT = 10
LOOPS_MAX = 50

TASK_CHARS_MAX = 100_000

TOOL = tools_pb2.Tool(
    name=NAME,
    description="Give a task to a sub-agent. It sees nothing but the task and works on its own; its result comes back.",
    parameters=f"""{{"type":"object","properties":{{
"agentKey":{{"type":"string","maxLength":128,"description":"Who; left out: an agent with your model and tools"}},
"task":{{"type":"string","minLength":1,"maxLength":{TASK_CHARS_MAX},"description":"All that it has to know"}},
"maxLoops":{{"type":"integer","minimum":1,"maximum":{LOOPS_MAX},"description":"Turns with tools; {LOOPS_DEFAULT}"}}}},
"required":["task"],"additionalProperties":false}}""",
    kind="own",
    tier="core",
    effect="idempotent",
)


class _SubagentArguments(msgspec.Struct):
    task: str
    agentKey: str = ""
    maxLoops: int = LOOPS_DEFAULT


class _SubagentResult(msgspec.Struct):
    result: str = ""
    error: str = ""
    contextId: str = ""


def is_offered(scope: Scope) -> bool:
    listed = NAME in (name.casefold() for name in scope.agent.working_tools)
    return scope.depth < scope.run.agent.depth_max and (listed or bool(_list_callable(scope)))


def describe_tool(scope: Scope) -> tools_pb2.Tool:
    tool = tools_pb2.Tool()
    tool.CopyFrom(TOOL)
    for agent in _list_callable(scope).values():
        tool.description += f"\n- agentKey {agent.key}: {agent.description or agent.name or agent.key}"
    return tool


async def execute_subagent(scope: Scope, peers: Peers, call: Call) -> tools_pb2.ToolOutcome:
    given = _read_arguments(call)
    agent = _list_callable(scope).get(given.agentKey.casefold())
    if agent is None and given.agentKey:
        known = ", ".join(agent.key for agent in _list_callable(scope).values()) or "none; leave agentKey out"
        return results.make_failure("UNKNOWN_AGENT", f"there is no agent {given.agentKey!r} to call; agents: {known}")
    delegate = scope.run.services.delegate
    assert delegate is not None, "runs that are asked for call sub-agents"
    return await delegate(scope, peers, call, SubagentTask(agent, given.task, given.maxLoops))


def recall_subagent(scope: Scope, call: Call, result: str) -> None:
    """Charge the run with the usage of a logged sub-agent and those below it."""
    run = scope.run
    for agent_id in run.restored.subagents_of(subagent_id(run.id, call.tool_id)):
        for answer in run.restored.answers(agent_id):
            run.spending.recall_model_call(answer.usage if answer.HasField("usage") else None)
        for message in run.restored.messages(agent_id):
            if message.message.role == "tool":
                text = "".join(part.text for part in message.message.content)
                run.spending.reserve_tool_calls(not results.is_refusal(text))
    keep_result(scope, call, result)


def keep_result(scope: Scope, call: Call, result: str) -> None:
    """Show the result in the parent's context once all calls of the answer have ended."""
    # In the log, notes for the model may follow on further lines.
    answer = msgspec.json.decode(result.partition("\n")[0], type=_SubagentResult)
    if answer.contextId and scope.agent.memory.recap.enabled:
        task = _read_arguments(call).task
        scope.notes.keep_return(call.tool_id, SubagentReturn(task, answer.result or answer.error))


def _read_arguments(call: Call) -> _SubagentArguments:
    # Some models write whole numbers as 10.0, which is an integer to JSON Schema.
    return msgspec.json.decode(call.effective, type=_SubagentArguments, strict=False)


def _list_callable(scope: Scope) -> dict[str, Definition]:
    wanted = {key.casefold(): None for key in (*scope.agent.subagents, *scope.attention.agents)}
    if not wanted:
        return {}
    existing = {agent.key.casefold(): agent for agent in list_callable_agents(scope)}
    return {key: existing[key] for key in wanted if key in existing}
