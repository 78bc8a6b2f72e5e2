"""What is refused of somebody who is being erased: every RPC of memory that keeps something new of them."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.contract import RPCS
from headrace.errors import Erasing
from services.memory.data.erasures import Refusals
from services.memory.storage.records.erasures import StoredErasure
from services.runtime.auth.identity import Identity

GOES_ON = {
    "AuditService": "RecordAudit",
    "DataStoreService": "PlaceHold ReleaseHold ClaimErasures FinishErasure",
    "KeyService": "RevokeKey TakeKeyCalls SuspendUser ReleaseUser",
    # Runs come to their end.
    "MemoryService": "Append AcquireLease RenewLease RenewLeases ReleaseLease ReserveSpend MeasureBudgets LoadContext"
    " ExportGates RevokeGrant",
    # It goes with its schedule, and its run does not begin.
    "ScheduleService": "ReceiveWebhook RecordFiring",
}
"""What ends what was begun, or keeps nothing of the user; what reads or deletes says so by its verb."""

READS_OR_DELETES = ("Delete", "Erase", "Find", "Get", "List", "Read", "Watch")


def test_each_rpc_of_memory_is_refused_or_reads_or_deletes_or_is_named_here() -> None:
    rpcs = [rpc for rpc in RPCS.values() if rpc.server == "memory"]
    going = {f"{service}.{name}" for service, names in GOES_ON.items() for name in names.split()}
    plain = {
        rpc.name
        for rpc in rpcs
        if rpc.descriptor.name.startswith(READS_OR_DELETES) or (rpc.http and (rpc.http.get or rpc.http.delete))
    }
    created = {rpc.name for rpc in rpcs if rpc.creates}
    assert created | plain | going == {rpc.name for rpc in rpcs}
    assert not created & (plain | going)
    assert not plain & going


class SlowErasures:
    """Records that are read at once, and told when the reader is let go on."""

    state = None

    def __init__(self) -> None:
        self.stored: list[StoredErasure] = []
        self.goes_on = asyncio.Event()

    async def list_all(self) -> list[StoredErasure]:
        found = [*self.stored]
        await self.goes_on.wait()
        return found


async def test_a_look_that_takes_long_does_not_hide_what_a_later_one_has_found() -> None:
    """Found by seed 48786 of trials/simulation: a fact was taken behind the answer to EraseData."""
    erasures = SlowErasures()
    engine: Any = SimpleNamespace(records=SimpleNamespace(erasures=erasures), eraser=SimpleNamespace(drain_s=3.0))
    refusals = Refusals(engine)
    first = asyncio.create_task(refusals.look())
    await asyncio.sleep(0)
    was_held, erasures.goes_on = erasures.goes_on, asyncio.Event()
    erasures.goes_on.set()
    erasures.stored.append(StoredErasure("1", "acme", "ada", 1, "op", 1))
    await refusals.look()
    was_held.set()
    await first
    with pytest.raises(Erasing):
        refusals.check(Identity("acme", "ada"))
