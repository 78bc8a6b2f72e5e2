"""A plan's tasks, which tools change. Ids derive from calls, so that a replay creates the same ones."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TypeAlias

from google.protobuf.message import Message

from headrace.v1 import agent_pb2, memory_pb2
from services.orchestrator.ids import derived_id
from services.orchestrator.run.restore.restored_run import RestoredScope

TASKS_MAX = 200
"""Maximum tasks; a model that adds more has lost track."""

OPEN = frozenset({"init", "in_progress"})
STATUSES = ("init", "in_progress", "completed", "failed", "canceled", "skipped")

Task = agent_pb2.Task


class PlanProblem(Exception):
    """Explains to the model why its change of the plan is refused."""


class Plan:
    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self.plan_id = ""
        """8 hex digits; empty until the plan has tasks."""
        self.tasks: list[Task] = []

    def add(self, given: Sequence[Task], made_by: str, *, parent: Task | None = None) -> list[Task]:
        """Append tasks, or insert them after `parent`.

        Raises:
            PlanProblem: The plan would have too many tasks.
        """
        if len(self.tasks) + len(given) > TASKS_MAX:
            raise PlanProblem(f"a plan holds {TASKS_MAX} tasks at most; this one has {len(self.tasks)}")
        self.plan_id = self.plan_id or derived_id(self._run_id, made_by)
        added = [self._make_task(task, f"{made_by}/{index}", parent) for index, task in enumerate(given)]
        at = len(self.tasks) if parent is None else self._index_behind(parent)
        self.tasks[at:at] = added
        return added

    def restate(
        self, remaining: Sequence[Task], given: Sequence[Task], made_by: str, *, parent: Task | None = None
    ) -> list[Task]:
        """Return the new list: tasks with an id are kept, those without are new, and missing ones are skipped.

        Raises:
            PlanProblem: An id is unknown or repeated, or the plan would have too many tasks.
        """
        known = {task.task_id: task for task in remaining}
        kept = [task.task_id for task in given if task.task_id]
        for task_id in kept:
            if task_id not in known or kept.count(task_id) > 1:
                raise PlanProblem(f"taskId {task_id!r} must be one of those that are left, once: {', '.join(known)}")
        new = [task for task in given if not task.task_id]
        added = iter(self.add(new, made_by, parent=parent))
        restated = [known[task.task_id] if task.task_id else next(added) for task in given]
        for task, one in zip(restated, given, strict=True):
            if one.task_id:
                task.description = one.description
                if one.HasField("composite"):
                    task.composite = one.composite
        for task in remaining:
            if task.task_id not in kept:
                task.status = "skipped"
        self._place_restated(remaining, restated)
        return restated

    def find(self, task_id: str) -> Task:
        """Return the task. Raises PlanProblem if the plan does not have it."""
        for task in self.tasks:
            if task.task_id == task_id:
                return task
        known = ", ".join(task.task_id for task in self.tasks) or "none"
        raise PlanProblem(f"there is no task {task_id!r} in the plan; tasks: {known}")

    def open(self) -> list[Task]:
        return [task for task in self.tasks if task.status in OPEN]

    def as_logged(self) -> memory_pb2.Plan:
        return memory_pb2.Plan(plan_id=self.plan_id, tasks=self.tasks)

    def as_text(self) -> str:
        return "\n".join(f"- {task.task_id} [{task.status}] {task.description}" for task in self.tasks)

    def _place_restated(self, former: Sequence[Task], restated: list[Task]) -> None:
        moved = [task for task in (*former, *restated) if task in self.tasks]
        if not moved:
            return
        at = min(self.tasks.index(task) for task in moved)
        skipped = [task for task in former if task.status == "skipped"]
        self.tasks = [task for task in self.tasks if task not in moved]
        self.tasks[at:at] = [*skipped, *restated]

    def _make_task(self, given: Task, name: str, parent: Task | None) -> Task:
        task = Task(task_id=derived_id(self._run_id, name), description=given.description)
        task.status = given.status or "init"
        if given.HasField("group"):
            task.group = given.group
        if given.HasField("composite"):
            task.composite = given.composite
        if parent is not None:
            task.parent_task_id = parent.task_id
        return task

    def _index_behind(self, parent: Task) -> int:
        family = {parent.task_id}
        at = self.tasks.index(parent) + 1
        while at < len(self.tasks) and self.tasks[at].parent_task_id in family:
            family.add(self.tasks[at].task_id)
            at += 1
        return at


def groups(tasks: Iterable[Task]) -> list[list[Task]]:
    found: list[list[Task]] = []
    for task in tasks:
        if found and task.group and found[-1][-1].group == task.group:
            found[-1].append(task)
        else:
            found.append([task])
    return found


Record: TypeAlias = Callable[[Message], Awaitable[object]]
"""Publishes an event once it is in the log."""


@dataclass(slots=True)
class Level:
    parent: Task | None

    remaining: list[Task]
    thought: str = ""


class ActivePlan:
    """The plan, owned by the mode and shared by the scopes of planner and tasks."""

    def __init__(self, run_id: str, chat_id: str, restored: RestoredScope, record: Record) -> None:
        self._chat_id = chat_id
        self._record = record
        self.plan = Plan(run_id)
        self.changes = 0
        self.parent: Task | None = None
        """Task that is being split; None for the plan itself."""
        self.level: Level | None = None
        self.history: list[str] = []
        past = restored.take_plan()
        self._is_published = past is not None
        self._published: list[Task] = past or []
        self._ahead = {task.task_id: task for task in self._published}
        """Tasks as readers know them, until a replay has reached the same state; older states are not published."""

    async def add(self, given: Sequence[Task], made_by: str) -> list[Task]:
        """Append tasks.

        Raises:
            PlanProblem: The plan would have too many tasks, or the list must be restated instead.
        """
        if self.level is not None:
            raise PlanProblem("state the whole list of what is left with _plan_restate_tasks_ instead")
        added = self.plan.add(given, made_by, parent=self.parent)
        self.changes += 1
        await self._record_plan()
        return added

    async def restate(self, given: Sequence[Task], made_by: str) -> list[Task]:
        """Replace the rest of the current list.

        Raises:
            PlanProblem: The change is refused.
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
        self._ahead.clear()
        await self._record_plan()

    async def _record_plan(self) -> None:
        # One by one: tasks that ran together may be replayed in another order, and then the whole plan never recurs.
        for task in self.plan.tasks:
            if self._ahead.get(task.task_id) == task:
                del self._ahead[task.task_id]
        if self._ahead or self.plan.tasks == self._published:
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
