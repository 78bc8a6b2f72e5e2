"""People who use the services as a good client does: they ask again under the same id, and attach again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

import grpc

from headrace.errors import HeadraceError
from headrace.streams import reading, rpc_errors
from headrace.v1 import agent_pb2, agent_pb2_grpc, memory_pb2_grpc
from services.runtime import json_form
from services.runtime.randomness import new_uuid
from services.runtime.rpc.channels import open_channel
from tests.order import TERMINAL, Event

if TYPE_CHECKING:
    from tests.simulation.story import Story

AGAIN_S = 0.5
"""Pause before anything is asked again."""

CALL_S = 20.0
"""Limit of one answer."""


@dataclass
class Asked:
    """One query as its reader has seen it."""

    chat_id: str
    request_id: str
    message: str
    agent: str
    run_id: str = ""
    events: list[Event] = field(default_factory=list[Event])
    attaches: int = 0
    refusal: str = ""
    """Reason of an error that says: never."""

    @property
    def end(self) -> Event | None:
        return self.events[-1] if self.events and self.events[-1]["type"] in TERMINAL else None

    @property
    def outcome(self) -> str:
        """In a word."""
        if self.end is None:
            return self.refusal or "open"
        return self.end.get("error", {}).get("code", self.end["type"])


class User:
    """One person at work on a chat, over any of the orchestrators."""

    def __init__(self, name: str, orchestrators: str, memory: str, story: Story) -> None:
        self.name = name
        self._addresses = orchestrators, memory
        self._story = story
        self.asked: list[Asked] = []

    async def __aenter__(self) -> User:
        self._channels = [open_channel(address) for address in self._addresses]
        self.agents: Any = agent_pb2_grpc.AgentServiceStub(self._channels[0])
        self.memory: Any = memory_pb2_grpc.MemoryServiceStub(self._channels[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        for channel in self._channels:
            await channel.close()

    async def ask(self, chat_id: str, message: str, agent: str, **fields: Any) -> Asked:
        """Have a query answered, whatever happens meanwhile."""
        asked = Asked(chat_id, new_uuid(), message, agent)
        self.asked.append(asked)
        self._story.tell(f"{self.name} asks {agent} in chat {chat_id[:4]}: {message!r} {fields or ''}")
        while asked.end is None and not asked.refusal:
            try:
                await self._follow(asked, fields)
            except HeadraceError as error:
                if not is_passing(error):
                    asked.refusal = error.reason
                    break
            except grpc.aio.AioRpcError:
                pass
            if asked.end is None:
                await asyncio.sleep(AGAIN_S)
        self._story.tell(f"{self.name} was answered by run {asked.run_id[:4]}: {asked.outcome}")
        return asked

    async def _follow(self, asked: Asked, fields: dict[str, Any]) -> None:
        if asked.run_id:
            asked.attaches += 1
            request = agent_pb2.AttachRequest(run_id=asked.run_id, last_seq=asked.events[-1]["seq"])
            call = self.agents.Attach(request)
        else:
            asked.events.clear()
            call = self.agents.Query(
                agent_pb2.QueryRequest(
                    message=asked.message,
                    agent_key=asked.agent,
                    chat_id=asked.chat_id,
                    request_id=asked.request_id,
                    **fields,
                )
            )
        async with reading(call) as deltas:
            await self._read(asked, deltas)

    async def _read(self, asked: Asked, deltas: AsyncIterator[agent_pb2.AgentDelta]) -> None:
        async for delta in deltas:
            event = as_json(delta)
            if event["type"] == "run.start":
                asked.run_id = event["runId"]
            asked.events.append(event)
            if event["type"] == "approval.ask":
                await self._reject(asked, event["approvalId"])

    async def _reject(self, asked: Asked, approval_id: str) -> None:
        payload = json.dumps({"decision": "reject"})
        request = agent_pb2.SubmitRequest(
            run_id=asked.run_id, approval_id=approval_id, payload=payload, request_id=approval_id
        )
        await self.try_until_answered(lambda: self.agents.Submit(request, timeout=CALL_S))

    async def try_until_answered(self, call: Any) -> Any:
        """Return the answer; None for an error that says: never."""
        while True:
            try:
                with rpc_errors():
                    return await call()
            except HeadraceError as error:
                if not is_passing(error):
                    return None
            except grpc.aio.AioRpcError:
                pass
            await asyncio.sleep(AGAIN_S)

    async def read_again(self, run_id: str) -> list[Event]:
        """Return the run as somebody sees it who comes later."""

        async def read() -> list[Event]:
            async with reading(self.agents.Attach(agent_pb2.AttachRequest(run_id=run_id))) as deltas:
                return [as_json(delta) async for delta in deltas]

        while True:
            events = await self.try_until_answered(read)
            if events is None or (events and events[-1]["type"] in TERMINAL):
                return events or []
            await asyncio.sleep(AGAIN_S)


def is_passing(error: HeadraceError) -> bool:
    return error.retriable or error.code is grpc.StatusCode.UNAVAILABLE


def as_json(delta: agent_pb2.AgentDelta) -> Event:
    sent = json_form.event(delta)
    assert sent is not None
    return json.loads(sent.json)


async def converse(user: User, random: Random, chat_id: str, questions: int) -> None:
    """Ask one question after the other."""
    for number in range(questions):
        await asyncio.sleep(random.uniform(0, 5))
        await user.ask(chat_id, f"question {number}", random.choice(("oneshot", "react", "react")))
