"""Models that call sub-agents."""

import asyncio
import json
from typing import Any

from headrace.v1 import llm_pb2
from tests.support.orchestrator.events import as_json, only
from tests.support.orchestrator.people import CHAT
from tests.support.orchestrator.requests import assert_paired
from tests.support.orchestrator.steps import Step, call
from tests.support.orchestrator.suite import Suite
from tests.support.order import Event, check_order
from tests.support.timing import within

HELPER = {
    "key": "helper",
    "description": "Looks things up",
    "mode": "REACT",
    "modelConfig": {"providerKey": "scripted", "model": "small"},
    "toolConfig": {"backends": ["look"]},
    "react": {"systemPrompt": "You help with {{query}}."},
}

PARENT = {"subagents": ["helper"], "react": {"parallelToolCalls": True}}


def delegate_task(task: str = "find it", *, index: int = 0, **fields: Any) -> list[Step]:
    arguments = json.dumps({"task": task} | fields)
    return call("call_subagent", arguments, index=index, call_id=f"call_{index}")


def first_question(request: llm_pb2.ChatRequest) -> str:
    """Return the first user message: a sub-agent's task, or the user's question."""
    return next(message for message in request.messages if message.role == "user").content[0].text


def texts_of(request: llm_pb2.ChatRequest, role: str) -> list[str]:
    return ["".join(part.text for part in m.content) for m in request.messages if m.role == role]


def script_replies(suite: Suite, **replies: list[list[Step]]) -> None:
    """Let the model play these turns, chosen by the first word of the request's first question."""
    turns_left = {name: [*turns] for name, turns in replies.items()}

    def reply(request: llm_pb2.ChatRequest) -> list[Step]:
        assert_paired(request)
        turns = turns_left[first_question(request).split()[0]]
        return turns.pop(0) if len(turns) > 1 else turns[0]

    suite.llm.reply = reply


CHILDREN = 50


async def run_and_cancel_tree(
    suite: Suite, mode: str, within_s: float, met: asyncio.Barrier | None = None
) -> list[Event]:
    """Run a tree, cancel it when 50 models answer at once, and check that it ends within this time; return its events.

    Models that wait at `met` continue when the cancel was accepted.
    """
    events: list[Event] = []

    async def read() -> None:
        async with suite.client.ask("hello", agent_key="react", chat_id=CHAT) as deltas:
            async for delta in deltas:
                events.append(as_json(delta))

    async with asyncio.TaskGroup() as group:
        reading = group.create_task(read())
        while suite.llm.open < CHILDREN:
            await asyncio.sleep(0.005)
        async with within(within_s):
            await suite.client.cancel(only(events, "run.start")["runId"], mode=mode)
            if met is not None:
                await met.wait()
            await reading
    check_order(events)
    return events
