"""The official SDK of A2A, whose server is killed while tasks wait for input: they are answered afterwards.

Arguments: the facade's URL, the binding, the agent, and how many tasks. Prints "begun" when all wait, reads a line,
answers, and prints one line of JSON when all have ended.
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
from a2a.types import GetTaskRequest, Message, Part, Role, SendMessageRequest, Task, TaskState

BASE, BINDING, AGENT, COUNT = sys.argv[1:]


async def send(agent: Any, text: str, **ids: str) -> str:
    """Send a message, and return its task's id when the stream is over."""
    message = Message(message_id=str(uuid4()), role=Role.ROLE_USER, parts=[Part(text=text)], **ids)
    task_id = ""
    async for event in agent.send_message(SendMessageRequest(message=message)):
        task_id = event.task.id or task_id
    return task_id


async def get_task(agent: Any, task_id: str) -> Task:
    while True:
        try:
            return await agent.get_task(GetTaskRequest(id=task_id))
        except Exception:  # Any error with which the client reports a server that is gone.
            await asyncio.sleep(0.2)


async def main() -> None:
    async with httpx.AsyncClient(timeout=100) as http:
        card = await A2ACardResolver(http, f"{BASE}/a2a/{AGENT}").get_agent_card()
        settings = ClientConfig(
            httpx_client=http, grpc_channel_factory=grpc.aio.insecure_channel, supported_protocol_bindings=[BINDING]
        )
        agent = ClientFactory(settings).create(card)
        ids = await asyncio.gather(*(send(agent, "go") for _ in range(int(COUNT))))
        print("begun", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        waiting = [await get_task(agent, task_id) for task_id in ids]
        await asyncio.gather(*(send(agent, "the old", task_id=task_id) for task_id in ids))
        ended = [await get_task(agent, task_id) for task_id in ids]
    report = {
        "waited": sorted({TaskState.Name(task.status.state) for task in waiting}),
        "states": sorted({TaskState.Name(task.status.state) for task in ended}),
        "texts": sorted({task.artifacts[0].parts[0].text for task in ended if task.artifacts}),
    }
    print(json.dumps(report))


asyncio.run(main())
