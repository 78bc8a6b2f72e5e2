"""Events of runs in their JSON form."""

import json
from collections.abc import AsyncIterable
from typing import Any

from headrace.client import Client
from headrace.v1 import agent_pb2
from services.runtime.formats import json_form
from tests.support.order import Event


def as_json(delta: agent_pb2.AgentDelta) -> Event:
    sent = json_form.event(delta)
    assert sent is not None
    return json.loads(sent.json)


def only(events: list[Event], kind: str) -> Event:
    """Return the only event of this type."""
    [event] = [event for event in events if event["type"] == kind]
    return event


def kinds(events: list[Event], *prefixes: str) -> list[str]:
    """Return the types of the events whose type starts with one of these prefixes."""
    return [event["type"] for event in events if event["type"].startswith(prefixes)]


def types(events: list[Event]) -> list[str]:
    return [event["type"] for event in events]


def results(events: list[Event]) -> list[tuple[str, bool]]:
    return [(event["result"], event["ok"]) for event in events if event["type"] == "tool.result"]


def run_of(events: list[Event]) -> str:
    return next(event["runId"] for event in events if event["type"] == "run.start")


async def ask_for(client: Client, message: str = "hello", **fields: Any) -> list[Event]:
    """Ask, and return all events of the run."""
    async with client.ask(message, **fields) as deltas:
        return [as_json(delta) async for delta in deltas]


async def read_until(deltas: AsyncIterable[agent_pb2.AgentDelta], until: str) -> list[Event]:
    """Read up to the first event of this type, or to the end; return the events."""
    events: list[Event] = []
    async for delta in deltas:
        events.append(as_json(delta))
        if events[-1]["type"] == until:
            break
    return events


async def ask_until(client: Client, until: str, message: str = "hello", **fields: Any) -> list[Event]:
    """Ask, and leave at the first event of this type; return the events so far."""
    async with client.ask(message, **fields) as deltas:
        return await read_until(deltas, until)


async def read(client: Client, run_id: str, last_seq: int = 0) -> list[Event]:
    """Attach after `last_seq`, and return all later events."""
    async with client.attach(run_id, last_seq) as deltas:
        return [as_json(delta) async for delta in deltas]


def list_notices(events: list[Event]) -> list[tuple[str, str]]:
    return [(event["code"], event["message"]) for event in events if event["type"] == "run.notice"]
