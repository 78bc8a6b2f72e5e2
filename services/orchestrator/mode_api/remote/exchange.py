"""One message to a remote agent, and what comes of it: to the end of its task, or until that asks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import structlog

from headrace.a2a import a2a_pb2
from headrace.errors import RemoteFailed, RemoteUnavailable
from services.orchestrator.mode_api.remote.notes import Asked, Notes, Received, Sent
from services.orchestrator.mode_api.remote.streamed_answer import StreamedAnswer, is_same_question
from services.orchestrator.peers.remote.client import RemoteClient
from services.orchestrator.peers.remote.faults import TASK_NOT_FOUND, UNSUPPORTED, Lost, Refused

RECONNECTS_MAX = 6
"""Times in a row that a task is followed anew without hearing anything of it."""

DELAY_S, DELAY_S_MAX = 0.2, 5.0

POLL_S, POLL_S_MAX = 0.5, 5.0
"""Pauses between looks at a task of an agent that does not stream."""

HISTORY = 20
"""Messages of a task that are looked at for one of ours."""

SENDS_MAX = 3
"""Times that a message is sent which may be sent again."""

log = structlog.get_logger()


class OutcomeUnknown(Exception):
    """A message may have been received, and must not be sent again by itself."""


class ContextRefused(Exception):
    """A message was refused that was to go on with an earlier conversation, which the agent may not know any more."""


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
        """Send the message, unless it was, and take what comes until the task ends or asks.

        Raises:
            OutcomeUnknown: Whether it was received is not known.
            ContextRefused: It may be sent as the first of a conversation.
        """
        self.received = received
        if received is None and was_sent:
            await self._find_received()
        if self.received is None:
            await self._send()
        if not self.answer.is_over:
            await self._follow()

    async def _find_received(self) -> None:
        """Find out whether a message was received that may have been lost.

        Raises:
            OutcomeUnknown: A task that it was to begin can be found by nobody, and it must not be sent twice.
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
        raise RemoteUnavailable(f"{self._client.host} did not say what became of a message", remote=self._client.host)

    async def _follow(self) -> None:
        """Follow the task until it ends or asks, over as many connections as that needs."""
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
            # What a task is, is heard at each connection; that alone is no progress.
            failures = 0 if self.answer.progress > before + 1 else failures + 1
            log.warning("remote task followed anew", remote=self._client.host, task_id=task_id, problem=problem)
            if failures > RECONNECTS_MAX:
                raise RemoteUnavailable(f"{self._client.host}: {problem}", remote=self._client.host)
            delay_s = DELAY_S if failures == 0 else min(2 * delay_s, DELAY_S_MAX)
            await asyncio.sleep(delay_s)

    async def _look(self, task_id: str) -> None:
        """Look at the task of an agent that does not stream, again and again: the run's time is the bound."""
        poll_s = POLL_S
        while True:
            await self.answer.take(a2a_pb2.StreamResponse(task=await self._client.get_task(task_id)))
            self.answer.expect_no_news()
            if self.answer.is_over:
                return
            await asyncio.sleep(poll_s)
            poll_s = min(2 * poll_s, POLL_S_MAX)

    async def _resume(self, task_id: str) -> AsyncGenerator[a2a_pb2.StreamResponse]:
        """Yield the task as it is, and what becomes of it; of one that has ended there is no more than that."""
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
