"""Encodes plans, tasks and sub-agents as AG-UI's activities, steps and sub-agents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.v1 import agent_pb2
from services.facade.agui.frames import encode_frame
from services.facade.agui.reader import Reader

PLAN = "PLAN"


class Progress:
    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._plans: dict[str, list[dict[str, Any]]] = {}

    def encode(self, kind: str, delta: agent_pb2.AgentDelta) -> bytes:
        """Return the frames of an event; empty for events of other kinds."""
        payload = getattr(delta, kind)
        match kind:
            case "plan_create" | "plan_update":
                return self._encode_plan(payload.plan_id, payload.plan, delta.subagent_id)
            case "task_start":
                return self._reader.open_step(payload.task_id, delta.subagent_id, payload.task_name)
            case "task_complete" | "task_cancel" | "task_fail":
                return self._reader.close_step(payload.task_id)
            case "subagent_start":
                return self._reader.open_subagent(
                    payload.subagent_id, payload.agent_key, payload.goal, payload.parent_id
                )
            case "subagent_end":
                return self._reader.close_subagent(payload.subagent_id, summary=payload.summary, ok=payload.ok)
            case _:
                return b""

    def _encode_plan(self, plan_id: str, plan: Sequence[agent_pb2.Task], owner: str) -> bytes:
        tasks = [{"id": task.task_id, "description": task.description, "status": task.status} for task in plan]
        before = self._plans.get(plan_id)
        self._plans[plan_id] = tasks
        fields = {"messageId": plan_id, "activityType": PLAN, "subagentRunId": owner or None}
        if before is None or len(before) != len(tasks):
            return encode_frame("ACTIVITY_SNAPSHOT", content={"tasks": tasks}, **fields)
        patch = [
            {"op": "replace", "path": f"/tasks/{at}", "value": task}
            for at, task in enumerate(tasks)
            if task != before[at]
        ]
        return encode_frame("ACTIVITY_DELTA", patch=patch, **fields)
