"""GateService: memory's view of what waits, and answers by the way that Submit takes."""

from __future__ import annotations

from headrace.v1 import agent_pb2, gates_pb2, gates_pb2_grpc, memory_pb2
from services.orchestrator import ids
from services.orchestrator.peers import stored_runs
from services.orchestrator.peers.stubs import UNARY_TIMEOUT_S, Peers, translating_peer_errors
from services.orchestrator.service import AgentService
from services.runtime.auth.identity import Identity, acting_as, require_identity
from services.runtime.rpc.call_ids import forward_metadata
from services.runtime.rpc.interceptors import Context


class GateService(gates_pb2_grpc.GateServiceServicer):
    def __init__(self, agents: AgentService, peers: Peers) -> None:
        self._agents = agents
        self._peers = peers

    async def ListGates(self, request: gates_pb2.ListGatesRequest, context: Context) -> gates_pb2.ListGatesResponse:
        with translating_peer_errors():
            return await self._peers.memory.ListGates(request, timeout=UNARY_TIMEOUT_S, metadata=forward_metadata())

    async def GetGate(self, request: gates_pb2.GetGateRequest, context: Context) -> gates_pb2.GetGateResponse:
        with translating_peer_errors():
            response = await self._peers.memory.GetGate(request, timeout=UNARY_TIMEOUT_S, metadata=forward_metadata())
        # Memory has seen to it that the caller may see the gate; the chat is the requester's.
        with acting_as(Identity.from_stored(require_identity().tenant, response.gate.requester)):
            chat = await stored_runs.get_chat(self._peers, memory_pb2.GetChatRequest(run_id=request.run_id))
        calls = (event.tool_snapshot for event in chat.events if event.HasField("tool_snapshot"))
        call = next((call for call in calls if call.tool_id == response.gate.tool_id), None)
        if call is not None and (arguments := call.tool_params or call.arguments):
            response.gate.arguments = arguments
        return response

    async def AnswerGate(self, request: gates_pb2.AnswerGateRequest, context: Context) -> gates_pb2.AnswerGateResponse:
        submit = agent_pb2.SubmitRequest(
            run_id=request.run_id, payload=request.payload, request_id=request.request_id or None
        )
        if request.gate_id.startswith(ids.APPROVAL):
            submit.approval_id = request.gate_id
        else:
            submit.tool_id = request.gate_id
        answer = await self._agents.Submit(submit, context)
        return gates_pb2.AnswerGateResponse(
            accepted=answer.accepted,
            status=answer.status,
            run_id=answer.run_id,
            gate_id=answer.tool_id,
            detail=answer.detail,
        )
