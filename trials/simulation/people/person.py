"""One person: access to the services as this user, and records of the acts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

import grpc

from headrace.errors import HeadraceError
from headrace.streams import rpc_errors
from headrace.v1 import (
    agent_pb2_grpc,
    data_pb2_grpc,
    gates_pb2_grpc,
    keys_pb2_grpc,
    memory_pb2_grpc,
    operator_pb2_grpc,
    schedule_pb2_grpc,
    webhook_pb2_grpc,
)
from services.runtime.auth import callers
from services.runtime.auth.identity import ALL_SCOPES, DEFAULT_SCOPES, Identity, adopt_identity
from services.runtime.rpc.channels import build_caller_metadata, open_channel
from trials.simulation.outside.outside import REQUESTER
from trials.simulation.planted.bugs import USER_BUGS

if TYPE_CHECKING:
    from tests.support.order import Event
    from trials.simulation.people.asked import Asked, Edit, Fork, GateTry, Kept, Shown, StateMove
    from trials.simulation.world.world import World

AGAIN_S = 0.5
"""Pause before a request is repeated."""


class Person:
    """One person, with access through any of the orchestrators."""

    def __init__(self, name: str, who: str, addresses: tuple[str, str], world: World) -> None:
        """`who` is the person's user; `addresses` are those of the orchestrators and of memory."""
        self.name, self.who = name, who
        self._addresses = addresses
        self.world, self.story = world, world.story
        self.asked: list[Asked] = []
        self.steers: list[tuple[str, str]] = []
        """Chat and text of each acknowledged steer."""
        self.cancels: list[tuple[Asked, float]] = []
        """Runs with an acknowledged cancel, and its time in seconds of the world."""
        self.states: list[StateMove] = []
        self.refusal = ""
        """Reason of the last permanent error."""
        self.gate_tries: list[GateTry] = []
        self.problems: list[str] = []
        self.kept: list[Kept] = []
        """Schedules of this person."""
        self.forks: list[Fork] = []
        self.edits: list[Edit] = []
        """Edits in the order of their requests, which are sequential."""
        self.watched: Shown = {}
        """Waiting gates, as seen by this person as a watcher."""
        self.shared: list[str] = []
        """Chats shared with others."""
        self.readings: list[tuple[str, list[Event]]] = []
        """Whole runs that this person has read again, by run."""

    async def __aenter__(self) -> Self:
        scopes = ALL_SCOPES if self.who == REQUESTER else DEFAULT_SCOPES
        adopt_identity(Identity("default", self.who, f"api_key:{self.who}", scopes=scopes))
        shown = build_caller_metadata(self.world.auth, callers.FACADE)
        self._channels = [open_channel(address, shown) for address in self._addresses]
        wrap = USER_BUGS.get(self.world.bug, lambda real: real)
        self.agents: Any = wrap(agent_pb2_grpc.AgentServiceStub(self._channels[0]))
        self.gates: Any = gates_pb2_grpc.GateServiceStub(self._channels[0])
        self.keys: Any = keys_pb2_grpc.KeyServiceStub(self._channels[1])
        self.memory: Any = memory_pb2_grpc.MemoryServiceStub(self._channels[1])
        self.data: Any = data_pb2_grpc.DataServiceStub(self._channels[0])
        self.operator: Any = operator_pb2_grpc.OperatorServiceStub(self._channels[0])
        self.webhooks: Any = webhook_pb2_grpc.WebhookServiceStub(self._channels[1])
        self.schedules: Any = schedule_pb2_grpc.ScheduleServiceStub(self._channels[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        for channel in self._channels:
            await channel.close()

    async def try_until_answered(self, call: Any) -> Any:
        """Return the answer, repeating the call after temporary errors; None after a permanent error."""
        while True:
            try:
                with rpc_errors():
                    return await call()
            except HeadraceError as error:
                if not is_passing(error):
                    self.refusal = error.reason
                    return None
            except grpc.aio.AioRpcError:
                pass
            await asyncio.sleep(AGAIN_S)


def is_passing(error: HeadraceError) -> bool:
    return error.retriable or error.code is grpc.StatusCode.UNAVAILABLE
