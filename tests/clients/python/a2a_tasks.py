"""The official SDK of A2A: each binding, streaming and not.

Arguments: the facade's URL and the binding; prints one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from importlib.metadata import version
from typing import Any
from uuid import uuid4

import grpc
import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import (
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
    TaskState,
)
from google.protobuf.json_format import ParseDict

BASE, BINDING = sys.argv[1:]


def ask(text: str, *files: Part, **ids: str) -> Any:
    message = Message(message_id=str(uuid4()), role=Role.ROLE_USER, parts=[Part(text=text), *files], **ids)
    return SendMessageRequest(message=message)


class Followed:
    """The state of a task, as its stream has reported it."""

    def __init__(self) -> None:
        self.task_id = self.context_id = self.text = ""
        self.state = TaskState.TASK_STATE_UNSPECIFIED
        self.pieces = 0
        self.asked = ""

    async def read(self, events: Any, until: int = -1) -> Followed:
        async for event in events:
            match event.WhichOneof("payload"):
                case "task":
                    self.task_id, self.context_id = event.task.id, event.task.context_id
                    self.note(event.task.status)
                    self.text = "".join(part.text for one in event.task.artifacts for part in one.parts)
                case "status_update":
                    self.note(event.status_update.status)
                case "artifact_update":
                    update = event.artifact_update
                    piece = "".join(part.text for part in update.artifact.parts)
                    self.text = self.text + piece if update.append else piece
                    self.pieces += 1
            if self.pieces == until:
                break
        return self

    def note(self, status: Any) -> None:
        self.state = status.state
        self.asked = status.message.parts[0].text if status.message.parts else ""

    @property
    def word(self) -> str:
        return TaskState.Name(self.state).removeprefix("TASK_STATE_")


async def follow_by_push(agent: Any) -> list[Any]:
    """Wait for a task's end by push notification at a server of ours, and manage the configs of notifications."""
    posts: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        size = int(head.partition("content-length: ")[2].partition("\r")[0])
        body = json.loads(await reader.readexactly(size))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()
        await posts.put((head.partition("x-a2a-notification-token: ")[2].partition("\r")[0], body))

    async with await asyncio.start_server(take, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        request = ask("Count.")
        request.configuration.task_push_notification_config.CopyFrom(
            TaskPushNotificationConfig(id="one", url=url, token="t0ken")
        )
        task_state = await Followed().read(agent.send_message(request))
        async with asyncio.timeout(100):
            token, body = await posts.get()
        update = ParseDict(body, StreamResponse()).status_update
        ids = {"task_id": task_state.task_id}
        await agent.create_task_push_notification_config(TaskPushNotificationConfig(**ids, id="two", url=url))
        listed = await agent.list_task_push_notification_configs(ListTaskPushNotificationConfigsRequest(**ids))
        second_config = await agent.get_task_push_notification_config(
            GetTaskPushNotificationConfigRequest(**ids, id="two")
        )
        await agent.delete_task_push_notification_config(DeleteTaskPushNotificationConfigRequest(**ids, id="two"))
        configs_left = await agent.list_task_push_notification_configs(ListTaskPushNotificationConfigsRequest(**ids))
        state = TaskState.Name(update.status.state)
        config_ids = [sorted(config.id for config in reply.configs) for reply in (listed, configs_left)]
        return [token, update.task_id == task_state.task_id, state, second_config.url == url, *config_ids]


async def main() -> None:
    report: dict[str, Any] = {}
    async with httpx.AsyncClient(timeout=100) as http:

        async def connect(agent: str, *, streaming: bool) -> Any:
            card = await A2ACardResolver(http, f"{BASE}/a2a/{agent}").get_agent_card()
            settings = ClientConfig(
                httpx_client=http,
                grpc_channel_factory=grpc.aio.insecure_channel,
                streaming=streaming,
                supported_protocol_bindings=[BINDING],
            )
            return ClientFactory(settings).create(card)

        for streaming in (True, False):
            agent, asking = await connect("words", streaming=streaming), Followed()
            await asking.read(agent.send_message(ask("Count.")))
            again = await Followed().read(agent.send_message(ask("Count.", context_id=asking.context_id)))
            task = await agent.get_task(GetTaskRequest(id=asking.task_id))
            listed = await agent.list_tasks(ListTasksRequest(context_id=asking.context_id))
            report["streamed" if streaming else "whole"] = [
                *(asking.word, asking.text, asking.pieces, task.artifacts[0].parts[0].text),
                *(again.context_id == asking.context_id, len(listed.tasks)),
            ]
        agent = await connect("words", streaming=True)
        table = Part(raw=b"mill,year", filename="mills.csv", media_type="text/csv")
        report["file"] = (await Followed().read(agent.send_message(ask("Count.", table)))).word
        waiting = await Followed().read(agent.send_message(ask("Wait.")), until=2)
        subscription = Followed()
        subscribed = asyncio.create_task(subscription.read(agent.subscribe(SubscribeToTaskRequest(id=waiting.task_id))))
        while not subscription.pieces:
            await asyncio.sleep(0.05)
        canceled = await agent.cancel_task(CancelTaskRequest(id=waiting.task_id))
        await subscribed
        report["canceled"] = [TaskState.Name(canceled.status.state), subscription.text, subscription.word]
        report["failed"] = (await Followed().read(agent.send_message(ask("Fail.")))).word
        report["pushed"] = await follow_by_push(agent)
        followed = [Followed().read(agent.send_message(ask("Count."))) for _ in range(50)]
        report["fifty"] = sorted({one.text for one in await asyncio.gather(*followed)})
        report["refused"] = []
        for call in (
            Followed().read(agent.send_message(ask("x", Part(url="https://example.org/mills.csv")))),
            agent.get_task(GetTaskRequest(id=str(uuid4()))),
            agent.cancel_task(CancelTaskRequest(id=waiting.task_id)),
            Followed().read(agent.send_message(ask("x", task_id=waiting.task_id))),
            connect("nobody", streaming=True),
        ):
            try:
                await call
            except Exception as error:
                report["refused"].append(type(error).__name__)
    print(json.dumps({"version": version("a2a-sdk"), "results": report}))


async def answer() -> None:
    """Answer a task that waits for a person with the next message."""
    async with httpx.AsyncClient(timeout=100) as http:
        card = await A2ACardResolver(http, f"{BASE}/a2a/publisher").get_agent_card()
        agent = ClientFactory(ClientConfig(httpx_client=http, supported_protocol_bindings=["JSONRPC"])).create(card)
        told = []
        for word in ("approve", "reject"):
            asked = await Followed().read(agent.send_message(ask("Publish a note")))
            ended = await Followed().read(agent.send_message(ask(word, task_id=asked.task_id)))
            told.append([asked.word, asked.asked, ended.word, "added to outputs/notes.md" in ended.text])
    print(json.dumps(told))


asyncio.run(answer() if BINDING == "answer" else main())
