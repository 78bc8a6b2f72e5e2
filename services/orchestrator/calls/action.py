"""Actions: the front end carries them out, and the model gets OK at once."""

from __future__ import annotations

from headrace.v1 import agent_pb2, tools_pb2
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.answers.call import Call
from services.orchestrator.run.scope import Scope


async def execute_action(scope: Scope, peers: Peers, call: Call) -> tools_pb2.ToolOutcome:
    scope.publish(agent_pb2.ActionParam(action_id=call.tool_id, param=call.effective))
    return tools_pb2.ToolOutcome(ok=True, result="OK")
