"""GateService: memory's view of what waits, and answers by the way that Submit takes."""

from __future__ import annotations

from headrace.streams import reading
from headrace.v1 import agent_pb2, gates_pb2, gates_pb2_grpc, memory_pb2
from services.orchestrator import ids
from services.orchestrator.cluster.forwarding import Forwarder
from services.orchestrator.lifecycle.live_calls import claim_rpc, gate_steps
from services.orchestrator.lifecycle.live_calls.approval_answers import hash_arguments
from services.orchestrator.lifecycle.live_calls.gate_calls import GateCalls
from services.orchestrator.lifecycle.live_calls.unknown_gates import AboutGate, check_closed
from services.orchestrator.peers import stored_runs
from services.orchestrator.peers.stubs import UNARY_TIMEOUT_S, Peers
from services.orchestrator.run.run import Run
from services.orchestrator.service import AgentService
from services.runtime.auth.answerers import may_answer
from services.runtime.auth.identity import Identity, require_identity
from services.runtime.randomness import new_uuid
from services.runtime.rpc.audit_records import AuditRecords
from services.runtime.rpc.call_ids import forward_metadata
from services.runtime.rpc.interceptors import Context
from services.runtime.rpc.peer_calls import translating_peer_errors
from services.runtime.rpc.push_stream import opening_sink
from services.runtime.rpc.watches import Watches


class GateService(gates_pb2_grpc.GateServiceServicer):
    def __init__(
        self,
        agents: AgentService,
        gates: GateCalls,
        relays: Forwarder,
        peers: Peers,
        watches: Watches,
        audit: AuditRecords,
    ) -> None:
        self._agents = agents
        self._gates = gates
        self._relays = relays
        self._peers = peers
        self._watches = watches
        self._audit = audit

    async def ListGates(self, request: gates_pb2.ListGatesRequest, context: Context) -> gates_pb2.ListGatesResponse:
        with translating_peer_errors():
            return await self._peers.memory.ListGates(request, timeout=UNARY_TIMEOUT_S, metadata=forward_metadata())

    async def WatchGates(self, request: gates_pb2.WatchGatesRequest, context: Context) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] - as Query
        watching = self._peers.memory.WatchGates(request, metadata=forward_metadata())
        async with self._watches.following(), opening_sink(context) as out, reading(watching) as told:
            async for news in told:
                if not out.send(news.SerializeToString()):
                    await out.wait_until_drained()

    async def GetGate(self, request: gates_pb2.GetGateRequest, context: Context) -> gates_pb2.GetGateResponse:
        with translating_peer_errors():
            response = await self._peers.memory.GetGate(request, timeout=UNARY_TIMEOUT_S, metadata=forward_metadata())
        caller, gate = require_identity(), response.gate
        requester = Identity.from_stored(caller.tenant, gate.requester)
        # Memory has seen to it that the caller may see the gate; what its call says is for those who decide.
        if caller != requester and "read_content" not in caller.scopes and not _may_decide(gate, requester, caller):
            return response
        if caller != requester:
            facts = {"chatId": gate.chat_id, "runId": gate.run_id, "gateId": gate.gate_id, "of": gate.requester}
            await self._audit.record("content.read", caller, **facts)
        wanted = memory_pb2.GetChatRequest(run_id=request.run_id)
        chat = await stored_runs.get_run_chat(self._peers, requester, wanted)
        calls = (event.tool_snapshot for event in chat.events if event.HasField("tool_snapshot"))
        call = next((call for call in calls if call.tool_id == response.gate.tool_id), None)
        if call is not None and (arguments := call.tool_params or call.arguments):
            response.gate.arguments = arguments
        for event in chat.events:
            if event.gate_open.gate_id == request.gate_id:
                response.gate.is_grantable = bool(event.gate_open.grounds)
                if event.gate_open.HasField("need"):
                    response.gate.need.CopyFrom(event.gate_open.need)
                if event.gate_open.HasField("ask"):
                    response.gate.ask.CopyFrom(event.gate_open.ask)
            if event.gate_step.gate_id == request.gate_id:
                response.gate.steps.add(at=event.timestamp).MergeFrom(event.gate_step)
        if edits := [step.arguments for step in response.gate.steps if step.decision == "edit"]:
            response.gate.arguments = edits[-1]
        if response.gate.kind == "approval" and response.gate.HasField("arguments"):
            response.gate.arguments_sha256 = hash_arguments(response.gate.arguments)
        return response

    async def AnswerGate(self, request: gates_pb2.AnswerGateRequest, context: Context) -> gates_pb2.AnswerGateResponse:
        submit = agent_pb2.SubmitRequest(
            run_id=request.run_id,
            payload=request.payload,
            request_id=request.request_id or None,
            holder=request.holder or None,
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
            votes_missing=answer.votes_missing if answer.HasField("votes_missing") else None,
            grant_id=answer.grant_id or None,
        )

    async def ClaimGate(self, request: gates_pb2.ClaimGateRequest, context: Context) -> gates_pb2.ClaimGateResponse:
        claim_rpc.check_lease(request)

        async def here(run: Run | None) -> gates_pb2.ClaimGateResponse:
            if run is not None:
                return await self._gates.claim(run, request)
            await check_closed(request.run_id, request.gate_id, self._peers)
            return gates_pb2.ClaimGateResponse(status="closed")

        return await self._relays.answer(
            "GateService/ClaimGate", request, context, here, requester=await self._find_requester(request)
        )

    async def ReleaseGate(
        self, request: gates_pb2.ReleaseGateRequest, context: Context
    ) -> gates_pb2.ReleaseGateResponse:
        async def here(run: Run | None) -> gates_pb2.ReleaseGateResponse:
            if run is not None:
                return await self._gates.release(run, request)
            await check_closed(request.run_id, request.gate_id, self._peers)
            return gates_pb2.ReleaseGateResponse(released=False)

        return await self._relays.answer(
            "GateService/ReleaseGate", request, context, here, requester=await self._find_requester(request)
        )

    async def DelegateGate(
        self, request: gates_pb2.DelegateGateRequest, context: Context
    ) -> gates_pb2.DelegateGateResponse:
        gate_steps.check_delegation(request)
        request.request_id = request.request_id or new_uuid()

        async def here(run: Run | None) -> gates_pb2.DelegateGateResponse:
            if run is not None:
                return await self._gates.delegate(run, request)
            await check_closed(request.run_id, request.gate_id, self._peers)
            return gates_pb2.DelegateGateResponse(status="closed")

        return await self._relays.answer(
            "GateService/DelegateGate", request, context, here, requester=await self._find_requester(request)
        )

    async def AskBack(self, request: gates_pb2.AskBackRequest, context: Context) -> gates_pb2.AskBackResponse:
        gate_steps.check_question(request)
        request.request_id = request.request_id or new_uuid()

        async def here(run: Run | None) -> gates_pb2.AskBackResponse:
            if run is not None:
                return await self._gates.ask_back(run, request)
            await check_closed(request.run_id, request.gate_id, self._peers)
            return gates_pb2.AskBackResponse(status="closed")

        return await self._relays.answer(
            "GateService/AskBack", request, context, here, requester=await self._find_requester(request)
        )

    async def ListGrants(self, request: gates_pb2.ListGrantsRequest, context: Context) -> gates_pb2.ListGrantsResponse:
        with translating_peer_errors():
            return await self._peers.memory.ListGrants(request, timeout=UNARY_TIMEOUT_S, metadata=forward_metadata())

    async def RevokeGrant(
        self, request: gates_pb2.RevokeGrantRequest, context: Context
    ) -> gates_pb2.RevokeGrantResponse:
        with translating_peer_errors():
            return await self._peers.memory.RevokeGrant(request, timeout=UNARY_TIMEOUT_S, metadata=forward_metadata())

    async def ExportGates(self, request: gates_pb2.ExportGatesRequest, context: Context) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] - as Query
        exporting = self._peers.memory.ExportGates(request, metadata=forward_metadata())
        async with opening_sink(context) as out, reading(exporting) as lines:
            async for line in lines:
                if not out.send(line.SerializeToString()):
                    await out.wait_until_drained()

    async def _find_requester(self, request: AboutGate) -> Identity:
        return await self._gates.find_requester(request.run_id, request.gate_id)


def _may_decide(gate: gates_pb2.Gate, requester: Identity, caller: Identity) -> bool:
    rule = gate.answerers
    is_named = may_answer(rule.any_of, requester, caller, not_requester=rule.not_requester)
    return is_named and "answer" in caller.scopes
