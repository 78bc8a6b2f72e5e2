"""One message to a remote agent, and its task until it ends or asks, streamed as one answer of the scope."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import structlog

from headrace.a2a import a2a_pb2
from headrace.errors import RemoteBadAnswer, RemoteFailed, RemoteUnavailable
from headrace.v1 import common_pb2, llm_pb2
from services.orchestrator.mode_api.remote.tasks import Artifacts, Asked, Notes, Received, Sent, join_message
from services.orchestrator.peers.remote.client import RemoteClient
from services.orchestrator.peers.remote.http import TASK_NOT_FOUND, UNSUPPORTED, Lost, Refused
from services.orchestrator.run.answers.answer import Answer
from services.orchestrator.run.scope import Scope

log = structlog.get_logger()


REPLACED = "REMOTE_REPLACED"
"""Reason of the reset if the agent replaces text that readers already have."""

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
    """Collects a task's events; `earlier` is the text that readers got before the question `asked`."""

    def __init__(self, scope: Scope, host: str, bytes_max: int, earlier: str, asked: Asked | None) -> None:
        self._scope = scope
        self._host = host
        self._bytes_max = bytes_max
        self._answered = asked
        """The answered question, as long as the task may still repeat it."""
        self._told = [earlier]
        """The task's text that readers have, in pieces."""
        self._size_bytes = len(earlier.encode())
        self._artifacts = Artifacts()
        self._remarks: set[str] = set()
        self.task_id = self.context_id = ""
        self.status = a2a_pb2.TaskStatus()
        self._has_answer = False
        """Whether the task has produced text since the answered question."""
        self.progress = 0
        """Counts events."""
        self.output_bytes = 0
        self.answer: Answer = scope.begin_answer()

    @property
    def is_over(self) -> bool:
        """Whether the task has ended or asks a question."""
        return self.status.state in ENDS | QUESTIONS

    @property
    def text(self) -> str:
        """All of the task's text that readers have."""
        return "".join(self._told)

    @property
    def left_out(self) -> int:
        return self._artifacts.left_out

    def expect_no_news(self) -> None:
        """Treat a repetition of the answered question as a new question."""
        self._answered = None

    async def take(self, event: a2a_pb2.StreamResponse) -> None:
        """Forward an event's content. Raises RemoteBadAnswer."""
        self.progress += 1
        match event.WhichOneof("payload"):
            case "task":
                task = event.task
                self._note_ids(task.id, task.context_id)
                if task.artifacts:  # some agents report a running task without its artifacts
                    self._artifacts.replace_all([*task.artifacts])
                    await self._compare()
                self._take_status(task.status)
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
                raise RemoteBadAnswer(f"{self._host} sent an event that is not of A2A 1.0", remote=self._host)

    def _note_ids(self, task_id: str, context_id: str) -> None:
        if not 0 < len(task_id) <= ID_CHARS_MAX or len(context_id) > ID_CHARS_MAX:
            raise RemoteBadAnswer(f"{self._host} gave a task an id that is none", remote=self._host)
        if self.task_id and task_id != self.task_id:
            raise RemoteBadAnswer(
                f"{self._host} answered with another task than the one that was started", remote=self._host
            )
        self.task_id, self.context_id = task_id, context_id or self.context_id

    def _take_status(self, status: a2a_pb2.TaskStatus) -> None:
        if self._answered is not None and is_same_question(status, self._answered):
            return
        self._answered = None
        self.status = status
        text = join_message(status.message)
        if status.state == a2a_pb2.TASK_STATE_COMPLETED and not self._has_answer:
            self._tell(text or self.text)  # the text before the question was the whole answer
        elif status.state in AT_WORK and text and status.message.message_id not in self._remarks:
            self._remarks.add(status.message.message_id)
            self._take(llm_pb2.LlmDelta(reasoning=f"{text}\n"), text)

    async def _compare(self) -> None:
        """Send readers the new part of the text; if their part has changed, reset and send all of it."""
        whole, streamed = self._artifacts.join(), self.text
        if whole.startswith(streamed):
            self._tell(whole[len(streamed) :])
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
    """End an answer, with the call that asks the user, if given."""
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


RECONNECTS_MAX = 6
"""Reconnections in a row without news before the task is given up."""

DELAY_S, DELAY_S_MAX = 0.2, 5.0

POLL_S, POLL_S_MAX = 0.5, 5.0
"""Poll intervals for a task whose agent does not stream."""

HISTORY = 20
"""Number of the task's latest messages searched for ours."""

SENDS_MAX = 3
"""Maximum sends of a message that may be repeated."""


class OutcomeUnknown(Exception):
    """A message may have been received, and must not be resent automatically."""


class ContextRefused(Exception):
    """The agent refused a message in an earlier conversation, which it may no longer know."""


class Exchange:
    def __init__(
        self, client: RemoteClient, notes: Notes, sent: Sent, text: str, answer: StreamedAnswer, asked: Asked | None
    ) -> None:
        """`asked` is the question that the message answers."""
        self._client = client
        self._notes = notes
        self._sent = sent
        self._text = text
        self.answer = answer
        self._asked = asked
        self.received: Received | None = None

    async def run(self, received: Received | None, *, was_sent: bool) -> None:
        """Send the message, unless it was sent, and process events until the task ends or asks a question.

        Raises:
            OutcomeUnknown: Whether the message was received is unknown.
            ContextRefused: The message may be sent again, as the first of a new conversation.
        """
        self.received = received
        if received is None and was_sent:
            await self._find_received()
        if self.received is None:
            await self._send()
        if not self.answer.is_over:
            await self._follow()

    async def _find_received(self) -> None:
        """Determine whether a message that may have been lost was received.

        Raises:
            OutcomeUnknown: The message was to begin a task, which cannot be looked up, and it must not be sent twice.
        """
        sent = self._sent
        if not sent.task_id:
            if self._client.remote.effect == "idempotent":
                return
            raise OutcomeUnknown
        try:
            task = await self._client.get_task(sent.task_id, HISTORY)
        except Lost as error:
            raise RemoteUnavailable(str(error), remote=self._client.host) from None
        except Refused as error:
            raise error.to_error(self._client.host) from None
        is_known = any(message.message_id == sent.message_id for message in task.history)
        if is_known or self._asked is None or not is_same_question(task.status, self._asked):
            await self._note_received(Received(task.id, task.context_id))

    async def _note_received(self, received: Received) -> None:
        self.received = received
        await self._notes.keep(received)

    async def _send(self) -> None:
        message = a2a_pb2.Message(
            message_id=self._sent.message_id,
            context_id=self._sent.context_id,
            task_id=self._sent.task_id,
            role=a2a_pb2.ROLE_USER,
            parts=[a2a_pb2.Part(text=self._text)],
        )
        delay_s = DELAY_S
        for attempt in range(1, SENDS_MAX + 1):
            try:
                await self._take_all(self._client.send(message))
            except Refused as error:
                if self._sent.context_id and not self._sent.task_id:
                    raise ContextRefused from None
                raise error.to_error(self._client.host) from None
            except Lost as error:
                log.warning("message to a remote agent lost", remote=self._client.host, problem=str(error))
            if self.received is not None or self.answer.is_over:
                return
            await self._find_received()
            if self.received is not None:
                return
            if attempt < SENDS_MAX:
                await asyncio.sleep(delay_s)
                delay_s *= 2
        raise RemoteUnavailable(f"{self._client.host} did not confirm a message", remote=self._client.host)

    async def _follow(self) -> None:
        """Follow the task until it ends or asks, with as many connections as necessary."""
        assert self.received is not None, "a message that was answered has its task"
        task_id, failures, delay_s = self.received.task_id, 0, DELAY_S
        while not self.answer.is_over:
            before, problem = self.answer.progress, "its stream ends before its task"
            try:
                if not self._client.interface.is_streaming:
                    await self._look(task_id)
                    return
                await self._take_all(self._resume(task_id))
            except (Lost, RemoteUnavailable) as error:
                problem = str(error)
            except Refused as error:
                if error.reason != TASK_NOT_FOUND:
                    raise error.to_error(self._client.host) from None
                message = f"{self._client.host} does not know the task any more"
                raise RemoteFailed(message, remote=self._client.host) from None
            if self.answer.is_over:
                return
            # Every connection starts with the task's state; that alone is not progress.
            failures = 0 if self.answer.progress > before + 1 else failures + 1
            log.warning("remote task followed anew", remote=self._client.host, task_id=task_id, problem=problem)
            if failures > RECONNECTS_MAX:
                raise RemoteUnavailable(f"{self._client.host}: {problem}", remote=self._client.host)
            delay_s = DELAY_S if failures == 0 else min(2 * delay_s, DELAY_S_MAX)
            await asyncio.sleep(delay_s)

    async def _look(self, task_id: str) -> None:
        """Poll a task whose agent does not stream; only the run's time limits this."""
        poll_s = POLL_S
        while True:
            await self.answer.take(a2a_pb2.StreamResponse(task=await self._client.get_task(task_id)))
            self.answer.expect_no_news()
            if self.answer.is_over:
                return
            await asyncio.sleep(poll_s)
            poll_s = min(2 * poll_s, POLL_S_MAX)

    async def _resume(self, task_id: str) -> AsyncGenerator[a2a_pb2.StreamResponse]:
        """Yield the task's state and its further events; for an ended task, only its state."""
        try:
            async with aclosing(self._client.subscribe(task_id)) as events:
                async for event in events:
                    yield event
        except Refused as error:
            if error.reason != UNSUPPORTED:
                raise
            yield a2a_pb2.StreamResponse(task=await self._client.get_task(task_id))

    async def _take_all(self, events: AsyncGenerator[a2a_pb2.StreamResponse]) -> None:
        async with aclosing(events):
            async for event in events:
                await self.answer.take(event)
                if self.received is None and self.answer.task_id:
                    await self._note_received(Received(self.answer.task_id, self.answer.context_id))
                if self.answer.is_over:
                    return
        self.answer.expect_no_news()
