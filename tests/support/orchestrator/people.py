"""Runs in which a person acts when an event arrives."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from headrace.streams import reading, rpc_errors
from headrace.v1 import agent_pb2, agent_pb2_grpc
from services.runtime.rpc.channels import open_channel
from tests.support.local_client import open_client
from tests.support.orchestrator.events import as_json
from tests.support.orchestrator.suite import Suite
from tests.support.order import Event, check_order

Act = Callable[[Event], Awaitable[None]]

CHAT = "5f0c0000-0000-4000-8000-000000000077"


async def submit(suite: Suite, run_id: str, wait_id: str, payload: Any, **fields: Any) -> str:
    """Submit for a toolId or an approvalId; return the status."""
    kind = "approval_id" if wait_id.startswith("approval_") else "tool_id"
    request = agent_pb2.SubmitRequest(run_id=run_id, payload=json.dumps(payload), **({kind: wait_id} | fields))
    async with open_channel(suite.address) as channel:
        with rpc_errors():
            response = await agent_pb2_grpc.AgentServiceStub(channel).Submit(request, timeout=100)
    assert response.accepted == (response.status == "accepted")
    return response.status


async def state(suite: Suite, run_id: str) -> str:
    """Return the run's current state."""
    async with open_client(suite.address) as client:
        return (await client.run(run_id)).state


def submits(suite: Suite, payload: Any) -> Act:
    """Return an act that submits this for an event's call or approval."""

    async def act(event: Event) -> None:
        wait_id = event.get("approvalId") or event["toolId"]
        assert await submit(suite, event["runId"], wait_id, payload) == "accepted"

    return act


def answers(suite: Suite, payload: Any) -> Act:
    """Return an act that answers an event's gate with this."""

    async def act(event: Event) -> None:
        reply = await suite.client.answer_gate(event["runId"], event["gateId"], json.dumps(payload))
        assert reply.status == "accepted"

    return act


def cancels(suite: Suite, **fields: Any) -> Act:
    """Return an act that cancels an event's run."""

    async def act(event: Event) -> None:
        await suite.client.cancel(event["runId"], **fields)

    return act


async def ask(suite: Suite, *acts: tuple[str, Act], message: str = "hello", **fields: Any) -> list[Event]:
    """Run a query to its end. Each act runs in a task of its own when the next event of its type arrives; it gets the
    event, with the run's id added.
    """
    events: list[Event] = []
    run_id = ""
    waiting = [*acts]
    given: dict[str, Any] = {"agent_key": "react", "chat_id": suite.chat_id or CHAT} | fields
    request = agent_pb2.QueryRequest(message=message, **given)
    async with (
        asyncio.TaskGroup() as group,
        open_channel(suite.address) as channel,
        _following(channel, request) as deltas,
    ):
        async for delta in deltas:
            event = as_json(delta)
            events.append(event)
            run_id = event.get("runId", run_id)
            if act := next((act for act in waiting if act[0] == event["type"]), None):
                waiting.remove(act)
                group.create_task(_later(act[1], event | {"runId": run_id}))
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
