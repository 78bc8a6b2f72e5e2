"""An agent of A2A's official SDK that says what to wear: it asks one of Headrace's agents for the weather.

    python stylist.py PORT WEATHER_CARD

Its card is at http://127.0.0.1:PORT/.well-known/agent-card.json.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing
from uuid import uuid4

import httpx
import uvicorn
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.helpers import new_task_from_user_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    Message,
    Part,
    Role,
    SendMessageRequest,
)
from starlette.applications import Starlette

ADVICE = "My advice: take a coat, an umbrella, and shoes that you can walk in."


class Stylist(AgentExecutor):
    """Forwards what the weather agent says as it comes, and adds its own advice."""

    def __init__(self, weather_card: str) -> None:
        self._weather_card = weather_card

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message is not None
        if context.current_task is None:
            await event_queue.enqueue_event(new_task_from_user_message(context.message))
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.start_work(updater.new_agent_message([Part(text="I ask the weather agent.")]))
        async with httpx.AsyncClient(timeout=60) as http:
            base, _, path = self._weather_card.partition("/.well-known/")
            card = await A2ACardResolver(http, base, f"/.well-known/{path}").get_agent_card()
            weather = ClientFactory(ClientConfig(httpx_client=http)).create(card)
            question = f"What is the weather, so that I can say: {context.get_user_input()}"
            await self._forward(weather, question, updater)
        await updater.add_artifact([Part(text=ADVICE)], artifact_id="advice")
        await updater.complete()

    async def _forward(self, weather: Client, question: str, updater: TaskUpdater) -> None:
        message = Message(message_id=str(uuid4()), role=Role.ROLE_USER, parts=[Part(text=question)])
        async with aclosing(weather.send_message(SendMessageRequest(message=message))) as events:
            async for event in events:
                if event.HasField("artifact_update"):
                    update = event.artifact_update
                    await updater.add_artifact([*update.artifact.parts], artifact_id="weather", append=update.append)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def make_app(port: int, weather_card: str) -> Starlette:
    url = f"http://127.0.0.1:{port}"
    card = AgentCard(
        name="Stylist",
        description="Says what to wear",
        version="1",
        supported_interfaces=[AgentInterface(url=f"{url}/", protocol_binding="JSONRPC", protocol_version="1.0")],
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="style", name="Style", description="Says what to wear", tags=["clothes"])],
    )
    stylist = Stylist(weather_card)
    handler = DefaultRequestHandler(agent_executor=stylist, task_store=InMemoryTaskStore(), agent_card=card)
    return Starlette(routes=[*create_jsonrpc_routes(handler, "/"), *create_agent_card_routes(card)])


if __name__ == "__main__":
    given_port, given_card = int(sys.argv[1]), sys.argv[2]
    config = uvicorn.Config(make_app(given_port, given_card), port=given_port, log_level="warning")
    asyncio.run(uvicorn.Server(config).serve())
