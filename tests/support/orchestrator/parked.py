"""Parked runs: a counter of parkings, and runs without readers."""

import asyncio

from prometheus_client import REGISTRY

from headrace.client import Client
from headrace.v1 import memory_pb2
from tests.support.orchestrator.suite import Suite

WAIT_S = 200.0


class ParkingCounter:
    """Counts parkings in all orchestrators of this process since its creation."""

    def __init__(self) -> None:
        self._before = self._read()

    def _read(self) -> float:
        return REGISTRY.get_sample_value("headrace_runs_parked_total") or 0.0

    @property
    def times(self) -> float:
        return self._read() - self._before

    async def wait(self, times: int = 1) -> None:
        async with asyncio.timeout(WAIT_S):
            while self.times < times:
                await asyncio.sleep(0.01)


async def ask_and_leave_at_gate(client: Client, message: str = "hello") -> tuple[str, str]:
    """Ask, and leave when a gate is open; return the ids of the run and the gate."""
    run_id = ""
    async with client.ask(message, agent_key="react") as deltas:
        async for delta in deltas:
            run_id = delta.run_start.run_id or run_id
            if delta.HasField("gate_open"):
                return run_id, delta.gate_open.gate_id
    raise AssertionError("no gate was opened")


async def wait_until_unowned(suite: Suite, run_id: str) -> int:
    """Wait until the run has no owner; return when it is due, in Unix milliseconds."""
    async with asyncio.timeout(WAIT_S):
        while True:
            request = memory_pb2.ListUnfinishedRunsRequest(run_id=run_id)
            [run] = (await suite.memory.ListUnfinishedRuns(request, None)).runs
            if not run.owner and run.lease_expires_at:
                return run.lease_expires_at
            await asyncio.sleep(0.01)
