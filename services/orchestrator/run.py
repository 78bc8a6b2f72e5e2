"""One run: what it is, what it has said, and its lines in the log.

Lines are committed in steps; an append whose answer did not arrive is kept and sent again before the run ends, so
that a cancel in the middle of a commit neither loses nor doubles a line (Append is idempotent by its request id).
"""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from headrace.errors import BudgetExceeded, HeadraceError
from headrace.v1 import agent_pb2, common_pb2, llm_pb2, memory_pb2
from services.orchestrator import ids
from services.orchestrator.answer import Answer, BlockNames, Call
from services.orchestrator.budget import Spending
from services.orchestrator.definition import Definition
from services.orchestrator.feed import Feed
from services.orchestrator.peers import UNARY_TIMEOUT_S, Peers, peer_errors
from services.runtime.ids import forwarded

State = Literal["queued", "running", "completed", "cancelled", "failed"]

Delta = agent_pb2.AgentDelta


class Stopped(Exception):
    """The run ends here because somebody asked for it (cancel with mode after_step)."""


class Run:
    """A live run. Owned by `Runs`; its own task alone publishes and commits."""

    def __init__(self, run_id: str, agent: Definition, query: agent_pb2.QueryRequest, peers: Peers) -> None:
        self.id = run_id
        self.chat_id = query.chat_id
        self.agent = agent
        self.query = query
        self.feed = Feed()
        self.names = BlockNames(run_id)
        self.spending = Spending(agent)
        self.state: State = "queued"
        self.stage = agent.mode.lower()
        self.created_at = self.updated_at = ids.now_ms()
        self.my_turn = asyncio.Event()
        """Set when no earlier run of the chat is live."""
        self.work: asyncio.Task[str] | None = None
        self.stop: Literal["", "now", "after_step"] = ""
        self.stop_error: HeadraceError | None = None
        """Why the run was stopped, when it was not a caller's wish."""
        self.open_calls: dict[str, Call] = {}
        """Calls without a result, by tool id."""
        self.system = ""
        self._peers = peers
        self._answer: Answer | None = None
        self._step = 0
        self._covered_seq = 0
        self._unanswered: dict[str, memory_pb2.AppendRequest] = {}

    def cancel(self, mode: Literal["now", "after_step"] = "now") -> None:
        """Ask the run to end with run.cancel. Returns at once; repeating it is harmless."""
        if self.stop != "now":
            self.stop = mode
        if mode == "now":
            self._end_work()

    def interrupt(self, error: HeadraceError) -> None:
        """Ask the run to end with run.error: its process stops."""
        self.stop_error = error
        self._end_work()

    def out_of_time(self) -> BudgetExceeded:
        """End the work because the run's time is used up, and return the error it ends with."""
        self._end_work()
        return self.spending.exceeded("timeoutMs")

    def check_stop(self) -> None:
        """Raise Stopped between steps, when an after_step cancel is waiting."""
        if self.stop:
            raise Stopped

    def publish(self, kind: str, **fields: object) -> Delta:
        """Publish an event of the run itself."""
        payload: Any = {kind: fields}
        delta = Delta(**payload)
        self.feed.publish(kind, delta)
        return delta

    async def record(self, kind: str, **fields: object) -> Delta:
        """Publish an event that no other line of the log implies: it is on disk before any reader has it."""
        payload: Any = {kind: fields}
        event = Delta(**payload)
        seq = self.feed.publish(kind, event, held=True)
        await self._append([memory_pb2.LogLine(event=memory_pb2.EventLine(event=event))])
        self.feed.release(seq)
        return event

    def begin_answer(self) -> Answer:
        """A new model answer; it is the run's open one until `end_answer` or the run's end."""
        self._answer = Answer(self.feed, self.names)
        return self._answer

    async def end_answer(self) -> None:
        """Close the open answer and commit its pieces, before any of its tools runs."""
        if messages := self._take_answer():
            await self.commit(messages)

    async def add_user_message(self, text: str) -> None:
        """Commit a message to the model that no person wrote: a repair prompt."""
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

    async def notice(self, code: str, message: str) -> None:
        """Tell the user something that ends nothing."""
        await self.record("run_notice", run_id=self.id, code=code, message=message)

    async def commit(self, messages: list[memory_pb2.LogMessage]) -> None:
        """Put messages into the log as the run's next step; they are on disk when this returns."""
        await self._append([self._step_line(messages)])

    def close(self, line: memory_pb2.RunLine, open_result: str) -> None:
        """Close what is open, give each call without a result `open_result`, and make the run's last lines.

        The lines are committed by `flush`; the terminal event is the caller's, after that.
        """
        messages = self._take_answer()
        messages += [self.result(call, open_result, ok=False) for call in [*self.open_calls.values()]]
        line.events.first_seq = line.events.last_seq = self.feed.seq + 1
        lines = [self._step_line(messages)] if messages else []
        self._keep_append([*lines, memory_pb2.LogLine(run=line)])

    async def flush(self) -> None:
        """Send every append again whose answer did not arrive, in order."""
        for request in [*self._unanswered.values()]:
            await self._send(request)
        self.feed.release_all()

    def as_run(self) -> agent_pb2.Run:
        """The run as GetRun gives it."""
        return agent_pb2.Run(
            run_id=self.id,
            chat_id=self.chat_id,
            agent_key=self.agent.key,
            state=self.state,
            usage=self.usage,
            budget_left=self.spending.left(),
            created_at=self.created_at,
            updated_at=self.updated_at,
        )

    @property
    def usage(self) -> common_pb2.Usage:
        return self.spending.usage

    def _end_work(self) -> None:
        self.my_turn.set()
        if self.work is not None:
            self.work.cancel()

    def _take_answer(self) -> list[memory_pb2.LogMessage]:
        answer, self._answer = self._answer, None
        if answer is None:
            return []
        answer.close()
        self.open_calls |= {call.tool_id: call for call in answer.calls}
        return answer.messages

    def _step_line(self, messages: list[memory_pb2.LogMessage]) -> memory_pb2.LogLine:
        self._step += 1
        step = memory_pb2.StepLine(stage=self.stage, seq=self._step, messages=messages)
        if self._step == 1 and self.system:
            step.system = self.system
        if self.feed.seq > self._covered_seq:
            step.events.first_seq, step.events.last_seq = self._covered_seq + 1, self.feed.seq
            self._covered_seq = self.feed.seq
        return memory_pb2.LogLine(step=step)

    async def _append(self, lines: list[memory_pb2.LogLine]) -> None:
        await self._send(self._keep_append(lines))

    def _keep_append(self, lines: list[memory_pb2.LogLine]) -> memory_pb2.AppendRequest:
        request = memory_pb2.AppendRequest(chat_id=self.chat_id, run_id=self.id, request_id=ids.new_uuid(), lines=lines)
        self._unanswered[request.request_id] = request
        return request

    async def _send(self, request: memory_pb2.AppendRequest) -> None:
        with peer_errors():
            await self._peers.memory.Append(request, timeout=UNARY_TIMEOUT_S, metadata=forwarded())
        self.updated_at = ids.now_ms()
        self._unanswered.pop(request.request_id, None)
