"""What a remote agent says in answer to one message, forwarded at once as one answer of the scope."""

from __future__ import annotations

from headrace.a2a import a2a_pb2
from headrace.errors import RemoteBadAnswer
from headrace.v1 import common_pb2, llm_pb2
from services.orchestrator.mode_api.remote.artifacts import Artifacts, join_message
from services.orchestrator.mode_api.remote.notes import Asked
from services.orchestrator.run.answers.answer import Answer
from services.orchestrator.run.scope import Scope

REPLACED = "REMOTE_REPLACED"
"""Reason of the reset where the agent has taken back what readers have."""

ID_CHARS_MAX = 512

ENDS = frozenset(
    {
        a2a_pb2.TASK_STATE_COMPLETED,
        a2a_pb2.TASK_STATE_FAILED,
        a2a_pb2.TASK_STATE_CANCELED,
        a2a_pb2.TASK_STATE_REJECTED,
    }
)
QUESTIONS = frozenset({a2a_pb2.TASK_STATE_INPUT_REQUIRED, a2a_pb2.TASK_STATE_AUTH_REQUIRED})

AT_WORK = frozenset({a2a_pb2.TASK_STATE_SUBMITTED, a2a_pb2.TASK_STATE_WORKING})


class StreamedAnswer:
    """Takes a task's events; `earlier` is what readers have of its text from before the question `asked`."""

    def __init__(self, scope: Scope, host: str, bytes_max: int, earlier: str, asked: Asked | None) -> None:
        self._scope = scope
        self._host = host
        self._bytes_max = bytes_max
        self._answered = asked
        """The question that was answered, while it may still be told."""
        self._told = [earlier]
        """The task's text as readers have it, in pieces."""
        self._size_bytes = len(earlier.encode())
        self._artifacts = Artifacts()
        self._remarks: set[str] = set()
        self.task_id = self.context_id = ""
        self.status = a2a_pb2.TaskStatus()
        self._has_answer = False
        """Whether there is text behind the question that was answered."""
        self.progress = 0
        """Counts events."""
        self.output_bytes = 0
        self.answer: Answer = scope.begin_answer()

    @property
    def is_over(self) -> bool:
        """Whether the task has ended, or asks."""
        return self.status.state in ENDS | QUESTIONS

    @property
    def text(self) -> str:
        """All of the task's text that readers have."""
        return "".join(self._told)

    @property
    def left_out(self) -> int:
        return self._artifacts.left_out

    def expect_no_news(self) -> None:
        """Take the question that was answered, if the task still tells it, for one that is asked once more."""
        self._answered = None

    async def take(self, event: a2a_pb2.StreamResponse) -> None:
        """Forward what an event says. Raises RemoteBadAnswer."""
        self.progress += 1
        match event.WhichOneof("payload"):
            case "task":
                await self._take_task(event.task)
            case "message":
                self.context_id = event.message.context_id or self.context_id
                self._tell(join_message(event.message))
                self.status = a2a_pb2.TaskStatus(state=a2a_pb2.TASK_STATE_COMPLETED)
            case "status_update":
                self._note_ids(event.status_update.task_id, event.status_update.context_id)
                self._take_status(event.status_update.status)
            case "artifact_update":
                self._note_ids(event.artifact_update.task_id, event.artifact_update.context_id)
                more = self._artifacts.take(event.artifact_update)
                if more is None:
                    await self._compare()
                else:
                    self._tell(more)
            case _:
                raise RemoteBadAnswer(f"{self._host} said something that is no event of A2A 1.0", remote=self._host)

    async def _take_task(self, task: a2a_pb2.Task) -> None:
        self._note_ids(task.id, task.context_id)
        if task.artifacts:  # some tell a task at work without what has come of it
            self._artifacts.replace_all([*task.artifacts])
            await self._compare()
        self._take_status(task.status)

    def _note_ids(self, task_id: str, context_id: str) -> None:
        if not 0 < len(task_id) <= ID_CHARS_MAX or len(context_id) > ID_CHARS_MAX:
            raise RemoteBadAnswer(f"{self._host} gave a task an id that is none", remote=self._host)
        if self.task_id and task_id != self.task_id:
            raise RemoteBadAnswer(f"{self._host} tells of another task than the one that was begun", remote=self._host)
        self.task_id, self.context_id = task_id, context_id or self.context_id

    def _take_status(self, status: a2a_pb2.TaskStatus) -> None:
        if self._answered is not None and is_same_question(status, self._answered):
            return
        self._answered = None
        self.status = status
        said = join_message(status.message)
        if status.state == a2a_pb2.TASK_STATE_COMPLETED and not self._has_answer:
            self._tell(said or self.text)  # what stood before a question turns out to be all that there is
        elif status.state in AT_WORK and said and status.message.message_id not in self._remarks:
            self._remarks.add(status.message.message_id)
            self._take(llm_pb2.LlmDelta(reasoning=f"{said}\n"), said)

    async def _compare(self) -> None:
        """Tell what the text has more than readers have; of one that they have otherwise, all of it anew."""
        whole, told = self._artifacts.join(), self.text
        if whole.startswith(told):
            self._tell(whole[len(told) :])
            return
        await self._scope.retract_answer(REPLACED)
        self.answer = self._scope.begin_answer()
        self._told, self._size_bytes, self._has_answer = [], 0, False
        self._tell(whole)

    def _tell(self, text: str) -> None:
        if text:
            self._told.append(text)
            self._has_answer = self._has_answer or not text.isspace()
            self._take(llm_pb2.LlmDelta(content=text), text)

    def _take(self, delta: llm_pb2.LlmDelta, text: str) -> None:
        size_bytes = len(text.encode())
        self._size_bytes += size_bytes
        self.output_bytes += size_bytes
        if self._size_bytes > self._bytes_max:
            limit = f"more than {self._bytes_max} bytes (remote.maxAnswerBytes)"
            raise RemoteBadAnswer(f"the answer of {self._host} has {limit}", remote=self._host)
        self.answer.take(delta.SerializeToString())


def end_answer(answer: Answer, usage: common_pb2.Usage | None, call: llm_pb2.ToolCallDelta | None = None) -> None:
    """End an answer, with the call that asks the user where there is one."""
    if call is not None:
        answer.take(llm_pb2.LlmDelta(tool_call=call).SerializeToString())
    if usage is not None:
        answer.take(llm_pb2.LlmDelta(usage=usage).SerializeToString())
    reason = "stop" if call is None else "tool_calls"
    answer.take(llm_pb2.LlmDelta(finish=llm_pb2.LlmFinish(reason=reason)).SerializeToString())


def read_question(status: a2a_pb2.TaskStatus) -> Asked:
    return Asked(status.message.message_id, status.timestamp.ToNanoseconds())


def is_same_question(status: a2a_pb2.TaskStatus, asked: Asked) -> bool:
    return status.state in QUESTIONS and read_question(status) == asked
