"""Encodes a run's waits: gates as interrupts, and pending calls of the caller's functions.

A stream ends when its run waits. The ids of interrupts and calls contain the run id and the reader's position,
so the facade keeps no state, and any replica accepts the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from headrace.runs.parts import Gate
from headrace.v1 import agent_pb2
from services.facade.agui.frames import OURS
from services.facade.faces.gate_answers import APPROVAL, GateRef
from services.runtime.clock import format_time

APPROVAL_SCHEMA = {
    "type": "object",
    "properties": {
        "decision": {"enum": ["approve", "edit", "reject"]},
        "arguments": {"type": "object", "description": "edit: the arguments to call with"},
        "argumentsSha256": {"type": "string", "description": "approve: needed for arguments that are long"},
        "note": {"type": "string"},
    },
    "required": ["decision"],
}


def build_outcome(gates: Sequence[tuple[Gate, str]], call_ids: Sequence[str], run_id: str, seq: int) -> dict[str, Any]:
    """Return the outcome of a segment that ends because the run waits.

    The run waits either at `gates`, each with the client's id of its call, or for the caller's functions in `call_ids`.
    """
    if not gates:
        return {"type": "success", "pendingToolCallIds": [*call_ids]}
    interrupts = [_build_interrupt(gate.open, gate.scope[0], call_id, run_id, seq) for gate, call_id in gates]
    return {"type": "interrupt", "interrupts": interrupts}


def _build_interrupt(gate: agent_pb2.GateOpen, subagent_id: str, call_id: str, run_id: str, seq: int) -> dict[str, Any]:
    is_approval = gate.kind == APPROVAL
    schema = APPROVAL_SCHEMA if is_approval else orjson.loads(gate.result_schema or "null")
    ours = {"kind": gate.kind, "gateId": gate.gate_id, "runId": run_id, "toolName": gate.tool_name}
    ours |= {"viewportKey": gate.viewport_key} if gate.viewport_key else {}
    ours |= {"risk": gate.risk} if gate.risk else {}
    ours |= {"argumentsChars": gate.arguments_chars} if gate.HasField("arguments_chars") else {}
    interrupt = {
        "id": str(GateRef(run_id, seq, gate.gate_id, is_approval)),
        "reason": "tool_call" if is_approval else "input_required",
        "message": gate.reason or f"{gate.tool_name} waits for an answer",
        "toolCallId": call_id,
        "expiresAt": format_time(gate.expires_at),
        "metadata": {OURS: ours},
    }
    interrupt |= {"responseSchema": schema} if isinstance(schema, dict) else {}
    return interrupt | ({"subagentRunId": subagent_id} if subagent_id else {})
