"""What people tell live runs about their gates: noted on the run's tape, and answered as its log has it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from google.protobuf.message import Message

from headrace.v1 import agent_pb2, gates_pb2
from services.orchestrator.lifecycle.live_calls import claim_rpc, gate_steps, submit_rpc
from services.orchestrator.lifecycle.live_calls.unknown_gates import AboutGate, check_not_open
from services.orchestrator.lifecycle.live_runs import LiveRuns
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.run import Run
from services.runtime.auth.identity import Identity

Step = TypeVar("Step", gates_pb2.ClaimGateRequest, gates_pb2.DelegateGateRequest, gates_pb2.AskBackRequest)
Answer = TypeVar("Answer", gates_pb2.ClaimGateResponse, gates_pb2.DelegateGateResponse, gates_pb2.AskBackResponse)

OVER = frozenset({"unmatched", "expired", "closed"})
"""Statuses that say that a gate waits no more, or never did."""


class GateCalls:
    """Each raises Overloaded where the log has the gate open, and the caller would be told that it is not."""

    def __init__(
        self, live: LiveRuns, peers: Peers, group: asyncio.TaskGroup, check_requester: Callable[[Run], None]
    ) -> None:
        """`group` owns what outlives a call; `check_requester` refuses what would have a run go on that must not."""
        self._check_requester = check_requester
        self._live = live
        self._peers = peers
        self._group = group

    async def find_requester(self, run_id: str, wait_id: str) -> Identity:
        """Return whose run it is where the caller may see what it waits for; the caller's own identity otherwise."""
        return await submit_rpc.find_requester(self._live, self._peers, run_id, wait_id)

    async def submit(self, run: Run, request: agent_pb2.SubmitRequest) -> agent_pb2.SubmitResponse:
        self._check_requester(run)
        note_received(run, "AgentService/Submit", submit_rpc.hide_secrets(request))
        answer = await submit_rpc.submit(run, request, self._group)
        await self._check_over(run, answer.tool_id, answer.status)
        return answer

    async def claim(self, run: Run, request: gates_pb2.ClaimGateRequest) -> gates_pb2.ClaimGateResponse:
        return await self._take_step(run, "ClaimGate", request, claim_rpc.claim_gate)

    async def delegate(self, run: Run, request: gates_pb2.DelegateGateRequest) -> gates_pb2.DelegateGateResponse:
        return await self._take_step(run, "DelegateGate", request, gate_steps.delegate_gate)

    async def ask_back(self, run: Run, request: gates_pb2.AskBackRequest) -> gates_pb2.AskBackResponse:
        return await self._take_step(run, "AskBack", request, gate_steps.ask_back)

    async def release(self, run: Run, request: gates_pb2.ReleaseGateRequest) -> gates_pb2.ReleaseGateResponse:
        await self._admit_step(run, "ReleaseGate", request)
        return await claim_rpc.release_gate(run, request, self._group)

    async def _take_step(
        self, run: Run, rpc: str, request: Step, take: Callable[[Run, Step, asyncio.TaskGroup], Awaitable[Answer]]
    ) -> Answer:
        await self._admit_step(run, rpc, request)
        answer = await take(run, request, self._group)
        await self._check_over(run, request.gate_id, answer.status)
        return answer

    async def _admit_step(self, run: Run, rpc: str, request: AboutGate) -> None:
        note_received(run, f"GateService/{rpc}", request)
        if run.waits.find_gate(request.gate_id) is None:
            await check_not_open(run.id, request.gate_id, self._peers)

    async def _check_over(self, run: Run, gate_id: str, status: str) -> None:
        if status in OVER:
            await check_not_open(run.id, gate_id, self._peers)


def note_received(run: Run, method: str, request: Message) -> None:
    """Note on the run's tape, if it has one, what its process was asked."""
    if run.tape is not None:
        run.tape.note_received(method, request)
