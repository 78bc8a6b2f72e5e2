"""A task of a plan: its scope, and how it begins and ends."""

from __future__ import annotations

from headrace.v1 import agent_pb2, common_pb2
from services.orchestrator.agents.definition import StageSettings
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.plan.active_plan import ActivePlan
from services.orchestrator.run.plan.plan import OPEN, Task
from services.orchestrator.run.scope import Scope
from services.orchestrator.setup.file_values import load_file_values

INTERRUPTED_RESULT = '{"ok":false,"error":"interrupted"}'

NOT_TOLD = common_pb2.Failure(code="TASK_NOT_UPDATED", message="the model did not say how the task ended")
FAILED = common_pb2.Failure(code="TASK_FAILED", message="the model could not do the task")
CODE_FAILED = common_pb2.Failure(code="TASK_FAILED", message="the mode's code ended the task with an error")


class TaskScope:
    def __init__(self, parent: Scope, peers: Peers, planned: ActivePlan, task: Task, settings: StageSettings) -> None:
        self.scope = parent.open_task(task.task_id, settings)
        self._peers = peers
        self._planned = planned
        self.task = task
        self.has_ended = False
        """Whether readers were told of an end, though the log may have refused it."""

    @property
    def results(self) -> dict[str, str]:
        """Results of its tools, the last of each, by name."""
        return self.scope.tools.results

    @property
    def recorded_end(self) -> agent_pb2.AgentDelta | None:
        """How an earlier owner ended it; None where it did not, or where more is to be replayed."""
        return self.scope.recording.task_end

    async def begin(self) -> None:
        task, scope = self.task, self.scope
        files = await load_file_values(scope, self._peers, scope.settings)
        scope.enter(scope.settings, **self._planned.values(task), **files)
        await self._planned.mark(task, "in_progress")
        start = agent_pb2.TaskStart(task_id=task.task_id, run_id=scope.run.id, description=task.description)
        await scope.record_start(start, lambda line: _make_last_event(task, line.state, line.error))

    async def end(self, text: str, error: common_pb2.Failure | None = None) -> None:
        """End the task as its status says, as failed if there is an `error`; readers get `text` as its summary."""
        task, scope = self.task, self.scope
        if error is None and task.status in OPEN:
            error = NOT_TOLD
        if error is not None:
            await self._planned.mark(task, "failed")
        if task.status == "completed":
            event = agent_pb2.TaskComplete(
                task_id=task.task_id, summary=text or None, artifact_ids=[*scope.notes.artifact_ids]
            )
        elif task.status == "failed":
            event = agent_pb2.TaskFail(task_id=task.task_id, error=error or FAILED)
        else:
            event = agent_pb2.TaskCancel(task_id=task.task_id)
        # What its model had begun is closed in the same breath: no later owner of the run is to take it for whole.
        cut = scope.close(INTERRUPTED_RESULT)
        self.has_ended = True
        await scope.record_end(event, behind=cut)
        scope.run.scopes.remove(scope)

    async def mark(self, status: str) -> None:
        await self._planned.mark(self.task, status)


def _make_last_event(task: Task, state: str, error: common_pb2.Failure) -> agent_pb2.TaskFail | agent_pb2.TaskCancel:
    if state == "failed":
        return agent_pb2.TaskFail(task_id=task.task_id, error=error)
    return agent_pb2.TaskCancel(task_id=task.task_id)
