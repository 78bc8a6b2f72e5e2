"""A conversation with a remote agent: our message, its task, its questions to our user, and its answer."""

from __future__ import annotations

import asyncio

import msgspec

from headrace.a2a import a2a_pb2
from headrace.errors import (
    NoAnswer,
    RemoteFailed,
    RemoteOutcomeUnknown,
    RemoteRejected,
    RemoteUnavailable,
    StaleLease,
)
from headrace.v1 import common_pb2
from services.orchestrator.mode_api.mode_run import ModeRun
from services.orchestrator.mode_api.remote import tasks
from services.orchestrator.mode_api.remote.exchange import (
    QUESTIONS,
    ContextRefused,
    Exchange,
    OutcomeUnknown,
    StreamedAnswer,
    end_answer,
    read_question,
)
from services.orchestrator.mode_api.remote.tasks import Asked, Notes, Received, Sent, Unknown, join_message
from services.orchestrator.money.charges import Origin
from services.orchestrator.peers.models import OUTPUT_TOKENS, CallNeeds, estimate_tokens
from services.orchestrator.peers.recorder import REMOTE
from services.orchestrator.peers.remote.client import RemoteClient
from services.orchestrator.peers.remote.http import shorten
from services.orchestrator.run import session_state
from services.orchestrator.run.answers.answer import Answer
from services.orchestrator.turn import output_form
from services.runtime.randomness import new_uuid
from services.runtime.usage import Rates

STATE = "remote."
"""Prefix of the chat state's fields that hold the ids of conversations with remote agents."""

CARD_DELAYS_S = (0.5, 1.0, 2.0, 4.0)
"""Pauses between attempts to read a card."""

STOPPED = frozenset({a2a_pb2.TASK_STATE_CANCELED, a2a_pb2.TASK_STATE_FAILED})


class RemoteConversation:
    """One scope's conversation with its remote agent."""

    def __init__(self, mode: ModeRun) -> None:
        remote, agents = mode.agent.remote, mode.conversation.run.services.remotes
        assert remote is not None, "the mode has its section"
        assert agents is not None, "an orchestrator has remote agents"
        self._conversation = mode.conversation
        self._scope = mode.conversation.scope
        self._message = mode.message
        self._remote = remote
        self._agents = agents
        self._notes = Notes(self._scope)
        self._client: RemoteClient | None = None
        self._task: Received | None = None
        """The task that has not ended."""
        self._asked: Asked | None = None
        """The task's last question."""
        self._again: Sent | None = None
        """The message to send again."""
        self._said = ""
        """The task's text that readers have received."""
        self._count = 0
        """Counts questions."""
        self._scope.offer_tools([tasks.make_tool(remote.question_timeout_ms)])

    async def run(self) -> str:
        """Return the finish reason of the scope's answer."""
        run = self._scope.run
        if run.recorder is not None:
            run.recorder.problem = REMOTE
        if self._scope is run.main and run.query.references:
            await self._scope.notice("MEDIA_LEFT_OUT", "the remote agent gets the message alone, without its files")
        try:
            return await self._converse()
        except StaleLease:
            raise
        except BaseException:
            run = self._scope.run
            # Its next owner would follow it.
            goes_on = run.control.is_given_up and (run.log.is_lost or run.control.mode != "now")
            if self._task is not None and not goes_on:
                self._agents.cancel_later(self._remote, self._task.task_id)
            raise

    async def _converse(self) -> str:
        text = self._message
        while True:
            answer = await self._exchange(text)
            if not answer.calls:
                return await self._finish(answer)
            await self._conversation.execute_calls(answer, parallel=False)
            call = answer.calls[0]
            if not call.ok:
                problem = f"nobody answered what it asked: {shorten(call.result)}"
                raise RemoteFailed(f"the task of {self._host} was given up: {problem}", remote=self._host)
            text = tasks.read_answer(call.result)

    async def _exchange(self, text: str) -> Answer:
        """Return the committed answer to a message; its last call, if any, asks the user."""
        while True:
            self._scope.run.control.check()
            sent = self._notes.recall_last(Sent)
            was_sent = sent is not None
            if sent is None:
                self._scope.run.control.go_live()
                sent = await self._note_message()
            if self._notes.recall(Unknown) is None:
                received = self._notes.recall(Received)
                self._task = received or self._task
                asked = self._notes.recall_last(Asked)
                if recalled := self._scope.recalled_answer():
                    self._asked = asked
                    return self._recall(recalled)
                try:
                    return await self._stream(sent, text, received, asked, was_sent=was_sent)
                except ContextRefused:
                    self._again = Sent(new_uuid())
                    continue
                except OutcomeUnknown:
                    await self._scope.retract_answer(RemoteOutcomeUnknown.reason)
                    await self._notes.keep(Unknown())
            self._again = sent
            await self._ask_whether_to_send_again()

    async def _note_message(self) -> Sent:
        sent, self._again = self._again, None
        if sent is None and self._task is not None:
            sent = Sent(new_uuid(), self._task.context_id, self._task.task_id)
        elif sent is None:
            sent = Sent(new_uuid(), await self._load_context_id())
        await self._notes.keep(sent)
        return sent

    async def _stream(
        self, sent: Sent, text: str, received: Received | None, noted: Asked | None, *, was_sent: bool
    ) -> Answer:
        """Stream the task's answer; `noted` is a question of the task in the log, from an answer that was not
        committed."""
        scope, run = self._scope, self._scope.run
        run.control.go_live()
        await run.state.wait_for_start()
        client = await self._open_client()
        price = self._remote.price
        rates = None if price is None else Rates(price.input_per_m_tok, price.output_per_m_tok)
        model = f"a2a/{self._host}"
        needs = CallNeeds(model, estimate_tokens(len(text.encode())), OUTPUT_TOKENS, OUTPUT_TOKENS, rates)
        async with run.spending.model_call(needs) as reservation:
            streamed = StreamedAnswer(scope, client.host, self._remote.max_answer_bytes, self._said, self._asked)
            exchange = Exchange(client, self._notes, sent, text, streamed, self._asked)
            try:
                await exchange.run(received, was_sent=was_sent)
            finally:
                self._task = exchange.received or self._task
                usage = needs.estimate_usage(streamed.output_bytes)
                run.spending.settle(usage, Origin(scope.agent.key, needs.model), reservation)
        self._said = streamed.text
        if streamed.left_out:
            await scope.notice("MEDIA_LEFT_OUT", f"the remote agent's answer has {streamed.left_out} files as bytes")
        if scope is run.main and streamed.context_id and streamed.context_id != sent.context_id:
            field = {f"{STATE}{scope.agent.key}": msgspec.json.encode(streamed.context_id)}
            await session_state.change(scope, self._conversation.peers, **field)
        if streamed.status.state not in QUESTIONS:
            self._task = None
            self._check_status(streamed.status)
        elif (asked := read_question(streamed.status)) != noted:
            await self._notes.keep(asked)
        self._asked = read_question(streamed.status)
        return await self._commit(streamed, usage)

    async def _commit(self, streamed: StreamedAnswer, usage: common_pb2.Usage) -> Answer:
        scope = self._scope
        call = None
        if streamed.status.state in QUESTIONS:
            self._count += 1
            asked = tasks.describe_question(streamed.status, scope.agent.name or scope.agent.key)
            call = tasks.make_call(scope.run.id, scope.context_id or "", self._count, asked)
        usage.model_calls = 1
        end_answer(streamed.answer, usage, call)
        if scope is scope.run.main and call is None:
            scope.hold_answer()
        else:
            await scope.end_answer()
        return scope.note_answer(streamed.answer)

    def _recall(self, answer: Answer) -> Answer:
        """Count a logged answer as if it had just arrived."""
        self._scope.run.spending.recall_model_call(answer.usage)
        self._said += answer.text
        if answer.calls:
            self._count += 1
        else:
            self._task = None
        return self._scope.note_answer(answer)

    async def _ask_whether_to_send_again(self) -> None:
        """Ask the user whether to send the message again. Raises RemoteOutcomeUnknown if they decline or no one
        answers."""
        scope = self._scope
        known = f"whether {self._host} has received a message is not known"
        answer = scope.recalled_answer()
        if answer is None:
            scope.run.control.go_live()
            await scope.notice("OUTCOME_UNKNOWN", known)
            self._count += 1
            question = f"It is not known whether {self._host} has received the message. Shall it be sent again?"
            choices = [tasks.SEND_AGAIN, tasks.LEAVE]
            asked = {"question": question, "choices": choices, "default": tasks.LEAVE, "required": False}
            answer = scope.begin_answer()
            end_answer(answer, None, tasks.make_call(scope.run.id, scope.context_id or "", self._count, asked))
            await scope.end_answer()
        else:
            self._count += 1
        await self._conversation.execute_calls(answer, parallel=False)
        call = answer.calls[0]
        if not call.ok or tasks.read_answer(call.result) != tasks.SEND_AGAIN:
            self._task = None
            raise RemoteOutcomeUnknown(f"{known}; find out before you ask again", remote=self._host)

    async def _finish(self, answer: Answer) -> str:
        """Use an answer as the scope's; return the finish reason. Raises NoAnswer, OutputMismatch."""
        if not answer.text.strip():
            raise NoAnswer(f"the remote agent at {self._host} ended without an answer")
        if (form := output_form.find_form(self._scope)) is not None:
            self._scope.notes.output = form.read_output(answer.text).require_json()
        return "stop"

    def _check_status(self, status: a2a_pb2.TaskStatus) -> None:
        words = shorten(join_message(status.message))
        if status.state == a2a_pb2.TASK_STATE_REJECTED:
            raise RemoteRejected(f"{self._host} rejects the task: {words or 'it does not say why'}", remote=self._host)
        if status.state in STOPPED:
            what = "failed" if status.state == a2a_pb2.TASK_STATE_FAILED else "was cancelled there"
            raise RemoteFailed(f"the task of {self._host} {what}: {words or 'it does not say why'}", remote=self._host)

    async def _open_client(self) -> RemoteClient:
        """Raises the errors of RemoteAgents.open_client. If a task is waiting for us, retry, because its agent may be
        restarting."""
        for delay_s in CARD_DELAYS_S if self._task is not None and self._client is None else ():
            try:
                self._client = await self._agents.open_client(self._remote)
                break
            except RemoteUnavailable:
                await asyncio.sleep(delay_s)
        if self._client is None:
            self._client = await self._agents.open_client(self._remote)
        return self._client

    @property
    def _host(self) -> str:
        return self._client.host if self._client is not None else self._scope.agent.key

    async def _load_context_id(self) -> str:
        """Return the id of the chat's remote conversation to continue; empty for a sub-agent's task, which begins a new
        one."""
        scope = self._scope
        if scope is not scope.run.main or (scope.run.chat.is_first and not scope.run.past.reason):
            return ""
        return (await session_state.load(scope, self._conversation.peers)).read(f"{STATE}{scope.agent.key}", str, "")
