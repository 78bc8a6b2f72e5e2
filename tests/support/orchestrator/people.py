"""Runs that a person takes part in: what is submitted when an event comes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from headrace.streams import reading, rpc_errors
from headrace.v1 import agent_pb2, agent_pb2_grpc
from services.runtime.rpc.channels import open_channel
from tests.support.orchestrator.events import as_json
from tests.support.orchestrator.suite import Suite
from tests.support.order import Event, check_order

Act = Callable[[Event], Awaitable[None]]

CHAT = "5f0c0000-0000-4000-8000-000000000077"


async def submit(suite: Suite, run_id: str, wait_id: str, payload: Any, **fields: Any) -> str:
    """Submit for a toolId or an approvalId; the status that comes back."""
    kind = "approval_id" if wait_id.startswith("approval_") else "tool_id"
    request = agent_pb2.SubmitRequest(run_id=run_id, payload=json.dumps(payload), **({kind: wait_id} | fields))
    async with open_channel(suite.address) as channel:
        with rpc_errors():
            response = await agent_pb2_grpc.AgentServiceStub(channel).Submit(request, timeout=100)
    assert response.accepted == (response.status == "accepted")
    return response.status


async def state(suite: Suite, run_id: str) -> str:
    """The run's state now."""
    async with open_channel(suite.address) as channel:
        reply = await agent_pb2_grpc.AgentServiceStub(channel).GetRun(
            agent_pb2.GetRunRequest(run_id=run_id), timeout=100
        )
    return reply.run.state


async def ask(suite: Suite, *acts: tuple[str, Act], message: str = "hello", **fields: Any) -> list[Event]:
    """A whole run; each act is done, in a task of its own, when the next event of its type comes."""
    events: list[Event] = []
    waiting = [*acts]
    request = agent_pb2.QueryRequest(message=message, agent_key="react", chat_id=suite.chat_id or CHAT, **fields)
    async with (
        asyncio.TaskGroup() as group,
        open_channel(suite.address) as channel,
        _following(channel, request) as deltas,
    ):
        async for delta in deltas:
            event = as_json(delta)
            events.append(event)
            if act := next((act for act in waiting if act[0] == event["type"]), None):
                waiting.remove(act)
                group.create_task(_later(act[1], event))
    check_order(events)
    suite.chat_id = suite.chat_id or CHAT
    suite.run_ids.append(events[-1]["runId"])
    assert not waiting, f"never happened: {[kind for kind, _ in waiting]}"
    return events


def _following(channel: grpc.aio.Channel, request: agent_pb2.QueryRequest) -> Any:
    stub: Any = agent_pb2_grpc.AgentServiceStub(channel)
    return reading(stub.Query(request))


async def _later(act: Act, event: Event) -> None:
    await act(event)
