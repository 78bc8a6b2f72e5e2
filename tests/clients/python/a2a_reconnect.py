"""The official SDK of A2A, whose server is killed: it subscribes to its tasks again, after the last event it read.

Arguments: the facade's URL, the binding, the agent, and how many tasks at once. Prints "begun" when all are answering,
and one line of JSON when all have ended.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any
from uuid import uuid4

import grpc
import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.client import ClientCallContext
from a2a.types import GetTaskRequest, Message, Part, Role, SendMessageRequest, SubscribeToTaskRequest, TaskState
from a2a.utils.errors import UnsupportedOperationError

BASE, BINDING, AGENT, COUNT = sys.argv[1:]
CURSOR = "urn:headrace:cursor:1"
ENDED = (TaskState.TASK_STATE_COMPLETED, TaskState.TASK_STATE_FAILED, TaskState.TASK_STATE_CANCELED)


class Reader:
    def __init__(self, agent: Any, on_begun: Any) -> None:
        self.agent, self.on_begun = agent, on_begun
        message = Message(message_id=str(uuid4()), role=Role.ROLE_USER, parts=[Part(text="go")])
        self.request = SendMessageRequest(message=message)
        self.task_id = self.text = self.cursor = ""
        self.state = TaskState.TASK_STATE_UNSPECIFIED
        self.breaks = 0

    async def read_to_end(self) -> Reader:
        while self.state not in ENDED:
            try:
                await self.read_stream()
            except UnsupportedOperationError:  # The task has ended meanwhile.
                await self.read_task()
            except Exception:  # Any error with which the client reports a server that is gone.
                self.breaks += 1
                await asyncio.sleep(0.2)
        return self

    async def read_stream(self) -> None:
        parameters = {"A2A-Extensions": CURSOR} | ({"Last-Event-ID": self.cursor} if self.cursor else {})
        context = ClientCallContext(service_parameters=parameters)
        if self.task_id:
            events = self.agent.subscribe(SubscribeToTaskRequest(id=self.task_id), context=context)
        else:
            events = self.agent.send_message(self.request, context=context)
        async for event in events:
            kind = event.WhichOneof("payload")
            if kind == "task":
                self.task_id, self.state = event.task.id, event.task.status.state
            elif kind == "status_update":
                self.state = event.status_update.status.state
            elif kind == "artifact_update":
                piece = "".join(part.text for part in event.artifact_update.artifact.parts)
                self.text = self.text + piece if event.artifact_update.append else piece
                self.on_begun(self)
            self.cursor = getattr(event, kind).metadata[CURSOR]

    async def read_task(self) -> None:
        task = await self.agent.get_task(GetTaskRequest(id=self.task_id))
        self.state, self.text = task.status.state, "".join(part.text for part in task.artifacts[0].parts)


async def main() -> None:
    answering: set[Reader] = set()

    def note(reader: Reader) -> None:
        if reader not in answering:
            answering.add(reader)
            if len(answering) == int(COUNT):
                print("begun", flush=True)

    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=100, limits=limits) as http:
        card = await A2ACardResolver(http, f"{BASE}/a2a/{AGENT}").get_agent_card()
        settings = ClientConfig(
            httpx_client=http, grpc_channel_factory=grpc.aio.insecure_channel, supported_protocol_bindings=[BINDING]
        )
        agent = ClientFactory(settings).create(card)
        readers = await asyncio.gather(*(Reader(agent, note).read_to_end() for _ in range(int(COUNT))))
    report = {
        "texts": sorted({reader.text for reader in readers}),
        "states": sorted({TaskState.Name(reader.state) for reader in readers}),
        "tasks": len({reader.task_id for reader in readers}),
        "broken": sum(bool(reader.breaks) for reader in readers),
    }
    print(json.dumps(report))


asyncio.run(main())
