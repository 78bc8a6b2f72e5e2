"""An agent of A2A's official SDK that does as its messages say, for our client.

Argument: the port. Prints a line for each message and cancel as soon as it arrives.
"""

from __future__ import annotations

import asyncio
import sys

import uvicorn
from a2a.helpers import new_task_from_user_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Message, Part, Role
from starlette.applications import Starlette

PORT = int(sys.argv[1])
URL = f"http://127.0.0.1:{PORT}"
WORDS = [f"w{number} " for number in range(200)]


def print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def make_message(text: str) -> Message:
    return Message(message_id=f"m-{text[:8]}", role=Role.ROLE_AGENT, parts=[Part(text=text)])


class ScriptedAgent(AgentExecutor):
    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        text = context.get_user_input()
        print_line(f"message {text}")
        if context.current_task is None:
            assert context.message is not None
            await event_queue.enqueue_event(new_task_from_user_message(context.message))
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.start_work()
        match text.split():
            case ["stream"]:
                await self.stream(updater, WORDS, 0)
                await updater.complete()
            case ["slow"]:
                await self.stream(updater, WORDS[:40], 0.1)
                await updater.complete()
            case ["hang"]:
                await self.stream(updater, WORDS[:3], 0)
                await asyncio.sleep(3600)
            case ["ask"]:
                await self.stream(updater, ["Let me ask. "], 0)
                await updater.requires_input(make_message("Which city?"))
            case ["fail"]:
                await updater.failed(make_message("out of milk"))
            case ["reject"]:
                await updater.reject(make_message("not my job"))
            case _:
                await self.stream(updater, [f"It rains in {text}."], 0)
                await updater.complete()

    async def stream(self, updater: TaskUpdater, words: list[str], pause_s: float) -> None:
        artifact_id = f"answer-{words[0]}"
        for number, word in enumerate(words):
            await updater.add_artifact([Part(text=word)], artifact_id=artifact_id, append=number > 0)
            await asyncio.sleep(pause_s)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        print_line("cancel")
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def make_card(path: str, binding: str, *, streaming: bool = True) -> AgentCard:
    return AgentCard(
        name="Obedient",
        description="Does as it is told",
        version="1",
        supported_interfaces=[AgentInterface(url=f"{URL}{path}", protocol_binding=binding, protocol_version="1.0")],
        capabilities=AgentCapabilities(streaming=streaming),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="obey", name="Obey", description="Does as it is told", tags=["test"])],
    )


def make_app() -> Starlette:
    card = make_card("/rpc", "JSONRPC")
    handler = DefaultRequestHandler(agent_executor=ScriptedAgent(), task_store=InMemoryTaskStore(), agent_card=card)
    routes = [
        *create_jsonrpc_routes(handler, "/rpc"),
        *create_rest_routes(handler, path_prefix="/rest"),
        *create_agent_card_routes(card, card_url="/jsonrpc.json"),
        *create_agent_card_routes(make_card("/rest", "HTTP+JSON"), card_url="/rest.json"),
        *create_agent_card_routes(make_card("/rpc", "JSONRPC", streaming=False), card_url="/polled.json"),
    ]
    return Starlette(routes=routes)


if __name__ == "__main__":
    server = uvicorn.Server(uvicorn.Config(make_app(), port=PORT, log_level="warning", timeout_graceful_shutdown=1))
    print_line("serving")
    asyncio.run(server.serve())
