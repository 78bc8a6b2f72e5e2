"""The plan in force: tools change it, and the scope that plans publishes each change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TypeAlias

from google.protobuf.message import Message

from headrace.v1 import agent_pb2
from services.orchestrator.run.plan.plan import Plan, PlanProblem, Task
from services.orchestrator.run.replay.replay import ScopeRecording

Record: TypeAlias = Callable[[Message], Awaitable[object]]
"""Publishes an event once it is in the log."""


@dataclass(slots=True)
class Level:
    parent: Task | None

    remaining: list[Task]
    thought: str = ""


class ActivePlan:
    """Owned by the mode, shared by the scopes of planner and tasks."""

    def __init__(self, run_id: str, chat_id: str, recording: ScopeRecording, record: Record) -> None:
        self._chat_id = chat_id
        self._record = record
        self.plan = Plan(run_id)
        self.changes = 0
        self.parent: Task | None = None
        """Task that is being split; None for the plan itself."""
        self.level: Level | None = None
        self.history: list[str] = []
        past = recording.take_plan()
        self._is_published = past is not None
        self._published: list[Task] = past or []
        self._is_behind = self._is_published
        """Whether a replay is behind the last published plan, and must not publish older states."""

    async def add(self, given: Sequence[Task], made_by: str) -> list[Task]:
        """Append tasks.

        Raises:
            PlanProblem: There would be too many, or the list is to be restated.
        """
        if self.level is not None:
            raise PlanProblem("state the whole list of what is left with _plan_restate_tasks_ instead")
        added = self.plan.add(given, made_by, parent=self.parent)
        self.changes += 1
        await self._record_plan()
        return added

    async def restate(self, given: Sequence[Task], made_by: str) -> list[Task]:
        """Replace what is left of the current list.

        Raises:
            PlanProblem: The plan cannot follow.
        """
        if self.level is None:
            raise PlanProblem("there is no list to restate; add tasks with _plan_add_tasks_ instead")
        level = self.level
        level.remaining = self.plan.restate(level.remaining, given, made_by, parent=level.parent)
        self.changes += 1
        await self._record_plan()
        return level.remaining

    async def mark(self, task: Task, status: str, description: str = "") -> None:
        if task.status == status and description in ("", task.description):
            return
        task.status = status
        task.description = description or task.description
        await self._record_plan()

    async def drop(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            task.status = "canceled"
        self._is_behind = False
        await self._record_plan()

    async def _record_plan(self) -> None:
        if self.plan.tasks == self._published:
            self._is_behind = False
            return
        if self._is_behind:
            return
        event = agent_pb2.PlanUpdate if self._is_published else agent_pb2.PlanCreate
        self._is_published = True
        self._published = [copy(task) for task in self.plan.tasks]
        await self._record(event(plan_id=self.plan.plan_id, chat_id=self._chat_id, plan=self._published))

    def values(self, task: Task | None = None) -> dict[str, str]:
        values = {"task_list": self.plan.as_text(), "task_history": "\n\n".join(self.history)}
        if task is not None:
            values |= {"task_id": task.task_id, "task_description": task.description}
        return values
