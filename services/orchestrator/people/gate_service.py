"""GateService and AgentService.Submit: memory's list of waiting gates, and people's actions where the run is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from headrace.streams import reading
from headrace.v1 import agent_pb2, gates_pb2, gates_pb2_grpc, memory_pb2
from services.orchestrator.cluster.forwarding import Forwarder
from services.orchestrator.lifecycle.live_runs import LiveRuns
from services.orchestrator.peers import stored_runs
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.people import access, answers, steps
from services.orchestrator.people.votes import hash_arguments
from services.orchestrator.run.run import Run
from services.runtime.auth.audit_records import AuditRecords
from services.runtime.auth.identity import Identity, acting_as, require_identity
from services.runtime.randomness import new_uuid
from services.runtime.rpc.interceptors import Context
from services.runtime.rpc.push_stream import Watches, opening_sink

Answer = TypeVar("Answer")


class GateService(gates_pb2_grpc.GateServiceServicer):
    """Never reports a gate as closed while the log has it open; it raises Overloaded instead."""

    def __init__(
        self,
        live: LiveRuns,
        relays: Forwarder,
        peers: Peers,
        watches: Watches,
        audit: AuditRecords,
        group: asyncio.TaskGroup,
        check_requester: Callable[[Run], None],
    ) -> None:
        """`group` owns tasks that outlive a call; `check_requester` refuses actions that would resume a suspended
        user's run."""
        self._live = live
        self._relays = relays
        self._peers = peers
        self._watches = watches
        self._audit = audit
        self._group = group
        self._check_requester = check_requester

    async def ListGates(self, request: gates_pb2.ListGatesRequest, context: Context) -> gates_pb2.ListGatesResponse:
        return await self._peers.memory.ListGates(request)

    async def WatchGates(self, request: gates_pb2.WatchGatesRequest, context: Context) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] - as Query
        watching = self._peers.memory.WatchGates(request)
        async with self._watches.following(), opening_sink(context) as out, reading(watching) as updates:
            async for news in updates:
                if not out.send(news.SerializeToString()):
                    await out.wait_until_drained()

    async def GetGate(self, request: gates_pb2.GetGateRequest, context: Context) -> gates_pb2.GetGateResponse:
        response = await self._peers.memory.GetGate(request)
        caller, gate = require_identity(), response.gate
        requester = Identity.from_stored(caller.tenant, gate.requester)
        # Memory has checked that the caller may see the gate; the call's content is only for those who decide.
        if caller != requester:
            decides = "answer" in caller.scopes and access.is_named(gate.answerers, requester, caller)
            if not decides and "read_content" not in caller.scopes:
                return response
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
            if event.request_submit.tool_id == request.gate_id:
                response.gate.answer = event.request_submit.payload
        if edits := [step.arguments for step in response.gate.steps if step.decision == "edit"]:
            response.gate.arguments = edits[-1]
        if response.gate.kind == "approval" and response.gate.HasField("arguments"):
            response.gate.arguments_sha256 = hash_arguments(response.gate.arguments)
        return response

    async def AnswerGate(self, request: gates_pb2.AnswerGateRequest, context: Context) -> gates_pb2.AnswerGateResponse:
        submit = agent_pb2.SubmitRequest(
            run_id=request.run_id,
            tool_id=request.gate_id,
            payload=request.payload,
            request_id=request.request_id or None,
            holder=request.holder or None,
        )
        answer = await self.submit(submit, context)
        return gates_pb2.AnswerGateResponse(
            accepted=answer.accepted,
            status=answer.status,
            run_id=answer.run_id,
            gate_id=answer.tool_id,
            detail=answer.detail,
            votes_missing=answer.votes_missing if answer.HasField("votes_missing") else None,
            grant_id=answer.grant_id or None,
        )

    async def submit(self, request: agent_pb2.SubmitRequest, context: Context) -> agent_pb2.SubmitResponse:
        """Answer a gate, on whichever replica its run is; Submit and AnswerGate both do this."""
        gate_id = answers.check(request)
        request.request_id = request.request_id or new_uuid()
        requester = await self._find_requester(request.run_id, gate_id)

        async def here(run: Run | None) -> agent_pb2.SubmitResponse:
            if run is None:
                by = require_identity().user
                with acting_as(requester):
                    return await answers.answer_ended(self._peers, request, by)
            self._check_requester(run)
            run.note_received(answers.hide_secrets(request))
            answer = await answers.submit(run, request, self._group)
            if answer.status in answers.OVER:
                await access.check_not_open(run.id, gate_id, self._peers)
                by = require_identity().user
                with acting_as(requester):
                    return await answers.repeat_answer(self._peers, request, by) or answer
            return answer

        return await self._relays.answer(request, context, here, requester=requester)

    async def ClaimGate(self, request: gates_pb2.ClaimGateRequest, context: Context) -> gates_pb2.ClaimGateResponse:
        steps.check_lease(request)
        closed = gates_pb2.ClaimGateResponse(status="closed")
        return await self._take_step(request, context, steps.claim_gate, closed)

    async def ReleaseGate(
        self, request: gates_pb2.ReleaseGateRequest, context: Context
    ) -> gates_pb2.ReleaseGateResponse:
        closed = gates_pb2.ReleaseGateResponse(released=False)
        return await self._take_step(request, context, steps.release_gate, closed)

    async def DelegateGate(
        self, request: gates_pb2.DelegateGateRequest, context: Context
    ) -> gates_pb2.DelegateGateResponse:
        steps.check_delegation(request)
        request.request_id = request.request_id or new_uuid()
        closed = gates_pb2.DelegateGateResponse(status="closed")
        return await self._take_step(request, context, steps.delegate_gate, closed)

    async def AskBack(self, request: gates_pb2.AskBackRequest, context: Context) -> gates_pb2.AskBackResponse:
        steps.check_note(request.note)
        request.request_id = request.request_id or new_uuid()
        closed = gates_pb2.AskBackResponse(status="closed")
        return await self._take_step(request, context, steps.ask_back, closed)

    async def _take_step(
        self,
        request: Any,
        context: Context,
        take: Callable[[Run, Any, asyncio.TaskGroup], Awaitable[Answer | None]],
        closed: Answer,
    ) -> Answer:
        """Take a step where the run is; return `closed` if the gate is closed (`take` returned None)."""

        async def here(run: Run | None) -> Answer:
            if run is None:
                await access.check_closed(request.run_id, request.gate_id, self._peers)
                return closed
            run.note_received(request)
            if run.gates.find(request.gate_id) is None:
                await access.check_not_open(run.id, request.gate_id, self._peers)
            if (answer := await take(run, request, self._group)) is not None:
                return answer
            await access.check_not_open(run.id, request.gate_id, self._peers)
            return closed

        requester = await self._find_requester(request.run_id, request.gate_id)
        return await self._relays.answer(request, context, here, requester=requester)

    async def ListGrants(self, request: gates_pb2.ListGrantsRequest, context: Context) -> gates_pb2.ListGrantsResponse:
        return await self._peers.memory.ListGrants(request)

    async def RevokeGrant(
        self, request: gates_pb2.RevokeGrantRequest, context: Context
    ) -> gates_pb2.RevokeGrantResponse:
        return await self._peers.memory.RevokeGrant(request)

    async def ExportGates(self, request: gates_pb2.ExportGatesRequest, context: Context) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] - as Query
        exporting = self._peers.memory.ExportGates(request)
        async with opening_sink(context) as out, reading(exporting) as lines:
            async for line in lines:
                if not out.send(line.SerializeToString()):
                    await out.wait_until_drained()

    async def _find_requester(self, run_id: str, gate_id: str) -> Identity:
        return await access.find_requester(self._live.find_of_tenant(run_id), self._peers, run_id, gate_id)
