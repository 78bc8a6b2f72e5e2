"""Lines of gates, and gates as they are listed."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from headrace.streams import reading
from headrace.v1 import agent_pb2, common_pb2, gates_pb2, memory_pb2
from services.runtime.clock import now_ms
from tests.support.memory.writing import Memory, event_line

AT = 1_700_000_000_000


def opening(gate_id: str, at: int = AT, **fields: Any) -> memory_pb2.LogLine:
    given: dict[str, Any] = {"kind": "form", "agent_key": "clerk", "tool_id": gate_id, "tool_name": "confirm"}
    gate = agent_pb2.GateOpen(gate_id=gate_id, expires_at=at + 1000, **(given | fields))
    return event_line(seq=5, timestamp=at, gate_open=gate)


def approval(gate_id: str, risk: str, at: int = AT) -> memory_pb2.LogLine:
    return opening(gate_id, at, kind="approval", tool_id="call_1", tool_name="pay", risk=risk, reason="it\0costs")


def submitted(gate_id: str, by: str = "ada", at: int = AT + 7) -> memory_pb2.LogLine:
    submit = agent_pb2.RequestSubmit(tool_id=gate_id, payload="{}", by=by, credential="api_key:0123456789ab")
    return event_line(seq=6, timestamp=at, request_submit=submit)


def closing(gate_id: str, state: str, at: int = AT + 9) -> memory_pb2.LogLine:
    return event_line(seq=7, timestamp=at, gate_close=agent_pb2.GateClose(gate_id=gate_id, state=state))


async def ids(memory: Memory, **fields: Any) -> list[str]:
    return [gate.gate_id for gate in (await memory.gates(**fields)).gates]


def step(gate_id: str, kind: str, by: str = "", **fields: Any) -> memory_pb2.LogLine:
    return event_line(seq=6, timestamp=AT, gate_step=agent_pb2.GateStep(gate_id=gate_id, step=kind, by=by, **fields))


WAIT_S = 20.0
"""Longest wait for an event; a loaded machine takes its time."""


class Watch:
    """The events that a reader receives, as short text."""

    shows_lists = False
    """Whether a repeated list is returned: it comes if the store's connection is made after the reader, and repeats its
    gates.
    """

    def __init__(self, news: AsyncIterator[gates_pb2.WatchGatesResponse]) -> None:
        self._news = news
        self._is_listed = False

    async def read(self) -> gates_pb2.WatchGatesResponse:
        async with asyncio.timeout(WAIT_S):
            while True:
                response = await anext(self._news)
                if response.HasField("gate") or self.shows_lists or not self._is_listed:
                    self._is_listed |= response.HasField("list_end")
                    return response

    async def find(self, is_sought: Callable[[gates_pb2.Gate], bool]) -> gates_pb2.Gate:
        """Read until a gate matches: a repeated list contains others, too."""
        while True:
            if is_sought(gate := (await self.read()).gate):
                return gate

    async def next(self, count: int = 1) -> list[str]:
        return [show(await self.read()) for _ in range(count)]


def show(news: gates_pb2.WatchGatesResponse) -> str:
    return f"{news.gate.gate_id} {news.gate.state}" if news.HasField("gate") else str(news.WhichOneof("event"))


@asynccontextmanager
async def watching(memory: Memory, **fields: Any) -> AsyncGenerator[Watch]:
    async with reading(memory.stub.WatchGates(gates_pb2.WatchGatesRequest(**fields))) as news:
        yield Watch(news)


def granting(grant_id: str, scope: str = "chat", **fields: Any) -> memory_pb2.LogLine:
    lasting: dict[str, Any] = {"expires_at": now_ms() + 100_000} if scope == "chat" else {}
    given: dict[str, Any] = {"tool_name": "pay", "grounds": ["medium risk: it\0costs"], "risk": "medium"}
    given |= {"made_by": ["bob"], "answerers": common_pb2.Answerers(any_of=["tenant"])}
    grant = agent_pb2.GrantMake(grant_id=grant_id, gate_id="approval_1", scope=scope, **(given | lasting | fields))
    return event_line(seq=9, timestamp=now_ms(), grant_make=grant)
