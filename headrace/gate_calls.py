"""The client's calls about gates: what waits for people."""

from __future__ import annotations

from typing import Any

from headrace.unary_calls import UnaryCalls
from headrace.v1 import gates_pb2


class GateCalls(UnaryCalls):
    _gates: Any

    async def gates(
        self, *, scope: str = "answerable", page_size: int = 0, page_token: str = ""
    ) -> gates_pb2.ListGatesResponse:
        """Return a page of what waits for people, the one that waits longest first; `scope` answerable, own or
        tenant."""
        request = gates_pb2.ListGatesRequest(scope=scope, page_size=page_size, page_token=page_token)
        return await self._send(self._gates.ListGates, request)

    async def gate(self, run_id: str, gate_id: str) -> gates_pb2.Gate:
        """Return a gate, open or closed, with its call's arguments."""
        request = gates_pb2.GetGateRequest(run_id=run_id, gate_id=gate_id)
        reply: gates_pb2.GetGateResponse = await self._send(self._gates.GetGate, request)
        return reply.gate

    async def answer_gate(
        self, run_id: str, gate_id: str, payload: str, *, request_id: str | None = None
    ) -> gates_pb2.AnswerGateResponse:
        """Answer a gate with a person's decision or a form's result, as JSON text."""
        request = gates_pb2.AnswerGateRequest(run_id=run_id, gate_id=gate_id, payload=payload, request_id=request_id)
        return await self._send(self._gates.AnswerGate, request)
