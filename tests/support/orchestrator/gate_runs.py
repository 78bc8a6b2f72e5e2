"""Runs that wait at gates, and actions of people on them."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from headrace.client import Client
from headrace.errors import HeadraceError
from headrace.v1 import gates_pb2
from tests.support.orchestrator.answerers import APPROVE, KEYS, LISTED, as_user, asking, offer
from tests.support.orchestrator.crashes import Crashes, restart
from tests.support.orchestrator.events import as_json, only, read
from tests.support.orchestrator.replicas import Replica
from tests.support.orchestrator.steps import ANSWER
from tests.support.orchestrator.suite import Serve, Suite
from tests.support.order import Event

Gate: TypeAlias = tuple[str, str]
"""The ids of a gate's run and of the gate."""


@dataclass
class GateFollower:
    """Reads a run of ada's, and learns the gate at which it waits."""

    events: list[Event] = field(default_factory=list[Event])
    gate: asyncio.Future[tuple[str, str]] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    async def follow(self, client: Client, **fields: Any) -> list[Event]:
        async with client.ask("hello", agent_key="react", **fields) as deltas:
            async for delta in deltas:
                self.events.append(event := as_json(delta))
                if event["type"] == "gate.open":
                    self.gate.set_result((only(self.events, "run.start")["runId"], event["gateId"]))
        if not self.gate.done():
            self.gate.set_exception(AssertionError("no gate was opened"))
        return self.events


@asynccontextmanager
async def reading_run(
    client: Client, **fields: Any
) -> AsyncGenerator[tuple[Gate, GateFollower, asyncio.Task[list[Event]]]]:
    """Start a run that waits at a gate and read it; the block waits until it has ended."""
    async with asyncio.TaskGroup() as group:
        follower = GateFollower()
        run = group.create_task(follower.follow(client, **fields))
        yield await follower.gate, follower, run


@asynccontextmanager
async def waiting_run(
    serve: Serve, rule: dict[str, Any], kind: str = "approval", **fields: Any
) -> AsyncGenerator[tuple[Suite, Gate, asyncio.Task[list[Event]]]]:
    """Start a run of ada's that waits at a gate with this rule."""
    async with serve(asking(kind), ANSWER, **({"keys": KEYS} | LISTED | fields)) as suite:
        offer(suite, rule, kind)
        async with reading_run(suite.client) as (gate, _, run):
            yield suite, gate, run


@asynccontextmanager
async def killing_owner(suite: Suite, owner: Replica) -> AsyncGenerator[tuple[Gate, GateFollower]]:
    """Start a run of ada's that waits at a gate; its owner is killed at the end of the block."""
    crashes, follower = Crashes(suite), GateFollower()
    async with as_user(owner.address, "ada") as ada:
        run = asyncio.create_task(follower.follow(ada))
        gate = await follower.gate
        yield gate, follower
        crashes.kill(gate[0])
        await owner.stop()
        with suppress(HeadraceError):
            await run


@asynccontextmanager
async def owner_dying_after(suite: Suite, payload: str) -> AsyncGenerator[tuple[Client, gates_pb2.Gate]]:
    """Start a run whose owner dies right after this answer to its gate is in the log; yield a client of the next owner,
    and the gate that it opens."""
    crashes, run_id = Crashes(suite), ""
    with suppress(HeadraceError):
        async with suite.client.ask("hello", agent_key="react") as deltas:
            async for delta in deltas:
                run_id = delta.run_start.run_id or run_id
                if delta.HasField("gate_open"):
                    crashes.kill_at(crashes.appends[run_id] + 1)
                    reply = await suite.client.answer_gate(run_id, delta.gate_open.gate_id, payload)
                    assert reply.status == "accepted"
    await suite.stop()
    async with restart(suite) as client, asyncio.timeout(100):
        while not (gates := [gate for gate in (await client.gates(scope="own")).gates if gate.state == "open"]):
            await asyncio.sleep(0.02)
        assert gates[0].run_id == run_id
        yield client, gates[0]


async def read_as(address: str, name: str, run_id: str) -> list[Event]:
    """Return all events of a run, as this user reads them."""
    async with as_user(address, name) as client:
        return await read(client, run_id)


async def try_as(address: str, name: str, act: Callable[[Client], Awaitable[str]]) -> str:
    """Act as `name`; return the result, or the error's reason."""
    async with as_user(address, name) as client:
        try:
            return await act(client)
        except HeadraceError as error:
            return error.reason


async def try_answer(address: str, name: str, gate: Gate, payload: str = APPROVE, **fields: Any) -> str:
    async def answer(client: Client) -> str:
        return (await client.answer_gate(*gate, payload, **fields)).status

    return await try_as(address, name, answer)


async def delegate(address: str, name: str, gate: Gate, *to: str, **fields: Any) -> str:
    return await try_as(address, name, lambda client: client.delegate_gate(*gate, to, **fields))


async def wait_for_rules() -> None:
    """Wait until approvals.yaml has been reloaded: the watcher checks it every 300 ms, twice."""
    await asyncio.sleep(0.8)
