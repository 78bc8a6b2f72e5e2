"""Further orchestrators over a house's memory: the next start of a process, or another replica."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace

from headrace.client import Client
from headrace.errors import StaleLease
from headrace.v1 import memory_pb2
from services.orchestrator.server import orchestrator
from tests.orchestrator.conftest import House


@asynccontextmanager
async def again(it: House, name: str = "") -> AsyncGenerator[Client]:
    """A client of another orchestrator, whose address is the house's now: the same owner, or one with this name."""
    config = replace(it.config, advertise=name)
    async with orchestrator(config) as running, Client(running.addresses[0], reattach_s=0) as client:
        it.address = running.addresses[0]
        yield client


class Crashes:
    """Orchestrators that die in the middle of a run: memory takes nothing of it from them any more."""

    def __init__(self, it: House) -> None:
        self._dead: dict[str, int] = {}
        self._at = -1
        self.appends: Counter[str] = Counter()
        """Of each run, taken."""
        it.memory.before = self._before
        it.memory.before_release = self._before_release

    def kill(self, run_id: str, generation: int = 0) -> None:
        """Let the owner of this generation die now."""
        self._dead[run_id] = generation

    def kill_at(self, append: int) -> None:
        """Let the owner of each later run die at this append, which is not taken, once."""
        self._at = append

    async def _before(self, request: memory_pb2.AppendRequest) -> None:
        run_id = request.run_id
        # Whoever takes a run over repeats its query, which is no line more.
        is_new = not self.appends[run_id] or not any(line.HasField("query") for line in request.lines)
        if is_new and run_id not in self._dead and self.appends[run_id] == self._at:
            self.kill(run_id, request.generation)
        self._refuse_the_dead(run_id, request.generation)
        self.appends[run_id] += is_new

    async def _before_release(self, request: memory_pb2.ReleaseLeaseRequest) -> None:
        self._refuse_the_dead(request.run_id, request.generation)

    def _refuse_the_dead(self, run_id: str, generation: int) -> None:
        if generation <= self._dead.get(run_id, -1):
            raise StaleLease("this process is dead")
