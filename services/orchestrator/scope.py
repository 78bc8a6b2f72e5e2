"""One line of thought of a run: the run itself, a task of its plan, or a sub-agent.

A scope has its own context in memory, its own stage and system message, one open answer at a time and the calls that
wait for results. What it publishes carries its ids, so that readers can fold scopes apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.v1 import agent_pb2, llm_pb2, memory_pb2
from services.orchestrator import ids
from services.orchestrator.answer import Answer, Call

if TYPE_CHECKING:
    from services.orchestrator.run import Run

Delta = agent_pb2.AgentDelta


class Scope:
    """Used by one task at a time; owned by its run, which closes it at the latest when it ends."""

    def __init__(
        self,
        run: Run,
        stage: str,
        *,
        context_id: str | None = None,
        subagent_id: str | None = None,
        task_id: str | None = None,
    ) -> None:
        self.run = run
        self.stage = stage
        self.context_id = context_id
        """In memory; None: the run's own."""
        self.subagent_id = subagent_id
        self.task_id = task_id
        self.system = ""
        """The system message, fixed for a stage."""
        self.open_calls: dict[str, Call] = {}
        """Calls without a result, by tool id."""
        self.send = self._send_inside if subagent_id or task_id else run.feed.publish
        """Number an event and pass it on (Feed.publish), with this scope's ids."""
        self._answer: Answer | None = None
        self._logged_system = ""

    def publish(self, kind: str, **fields: object) -> Delta:
        """Publish an event."""
        delta = _event(kind, fields)
        self.send(kind, delta)
        return delta

    async def record(self, kind: str, **fields: object) -> Delta:
        """Publish an event that no other line of the log implies: it is on disk before any reader has it."""
        event = _event(kind, fields)
        seq = self.send(kind, event, held=True)
        line = memory_pb2.EventLine(event=event, context_id=self.context_id)
        await self.run.log.append([memory_pb2.LogLine(event=line)])
        self.run.feed.release(seq)
        return event

    async def notice(self, code: str, message: str) -> None:
        """Tell the user something that ends nothing."""
        await self.record("run_notice", run_id=self.run.id, code=code, message=message)

    def begin_answer(self) -> Answer:
        """A new model answer; it is the scope's open one until `end_answer` or `close`."""
        self._answer = Answer(self.send, self.run.names)
        return self._answer

    async def end_answer(self) -> None:
        """Close the open answer and commit its pieces, before any of its tools runs."""
        if messages := self._take_answer():
            await self.commit(messages)

    async def add_user_message(self, text: str) -> None:
        """Commit a message to the model that no person wrote: a repair prompt, a task."""
        message = memory_pb2.LogMessage(ts=ids.now_ms(), message=llm_pb2.Message(role="user"))
        message.message.content.add(text=text)
        await self.commit([message])

    def result(self, call: Call, text: str, ok: bool) -> memory_pb2.LogMessage:
        """Publish a call's result, and return its message for the log."""
        del self.open_calls[call.tool_id]
        event = self.publish("tool_result", tool_id=call.tool_id, result=text, ok=ok)
        message = memory_pb2.LogMessage(tool_id=call.tool_id, ts=event.timestamp, ok=ok)
        message.message.role, message.message.name, message.message.tool_call_id = "tool", call.name, call.tool_id
        message.message.content.add(text=text)
        message.events.first_seq = message.events.last_seq = event.seq
        return message

    async def commit(self, messages: list[memory_pb2.LogMessage]) -> None:
        """Put messages into the log as the scope's next step; they are on disk when this returns."""
        await self.run.log.append([self._step_line(messages)])

    def close(self, open_result: str) -> list[memory_pb2.LogLine]:
        """Close what is open, give each call without a result `open_result`, and return the lines for the log."""
        messages = self._take_answer()
        messages += [self.result(call, open_result, ok=False) for call in [*self.open_calls.values()]]
        return [self._step_line(messages)] if messages else []

    def _send_inside(self, kind: str, delta: Delta, *, held: bool = False) -> int:
        if self.subagent_id:
            delta.subagent_id = self.subagent_id
        if self.task_id:
            delta.task_id = self.task_id
        return self.run.feed.publish(kind, delta, held=held)

    def _take_answer(self) -> list[memory_pb2.LogMessage]:
        answer, self._answer = self._answer, None
        if answer is None:
            return []
        answer.close()
        self.open_calls |= {call.tool_id: call for call in answer.calls}
        return answer.messages

    def _step_line(self, messages: list[memory_pb2.LogMessage]) -> memory_pb2.LogLine:
        step = self.run.log.step(self.stage, messages, self.run.feed.seq)
        if self.context_id:
            step.context_id = self.context_id
        if self.task_id:
            step.task_id = self.task_id
        if self.system != self._logged_system:
            step.system = self._logged_system = self.system
        return memory_pb2.LogLine(step=step)


def _event(kind: str, fields: dict[str, object]) -> Delta:
    payload: Any = {kind: fields}
    return Delta(**payload)
