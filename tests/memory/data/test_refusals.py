"""Refusals for a user who is being erased: every RPC of memory that stores something new of them."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.contract import RPCS
from headrace.errors import Erasing
from services.memory.data.erasures import Refusals
from services.memory.storage.records.erasures import StoredErasure
from services.runtime.auth.identity import Identity

ALLOWED = {
    "AuditService": "RecordAudit",
    "DataStoreService": "PlaceHold ReleaseHold ClaimErasures FinishErasure",
    "KeyService": "RevokeKey TakeKeyCalls SuspendUser ReleaseUser",
    # A run may end.
    "MemoryService": "Append AcquireLease RenewLease RenewLeases ReleaseLease ReserveSpend MeasureBudgets LoadContext"
    " ExportGates RevokeGrant",
    # The firing is deleted with its schedule, and its run does not start.
    "ScheduleService": "ReceiveWebhook RecordFiring",
}
"""RPCs that end what was started, or store nothing of the user; those that read or delete are recognised by their
verb."""

READS_OR_DELETES = ("Delete", "Erase", "Find", "Get", "List", "Read", "Watch")


def test_each_rpc_of_memory_is_refused_or_reads_or_deletes_or_is_listed_here() -> None:
    rpcs = [rpc for rpc in RPCS.values() if rpc.server == "memory"]
    allowed = {f"{service}.{name}" for service, names in ALLOWED.items() for name in names.split()}
    plain = {
        rpc.name
        for rpc in rpcs
        if rpc.descriptor.name.startswith(READS_OR_DELETES) or (rpc.http and (rpc.http.get or rpc.http.delete))
    }
    created = {rpc.name for rpc in rpcs if rpc.creates}
    assert created | plain | allowed == {rpc.name for rpc in rpcs}
    assert not created & (plain | allowed)
    assert not plain & allowed


class SlowErasures:
    """Records whose reader gets what was stored when it started, but only once `may_continue` is set."""

    state = None

    def __init__(self) -> None:
        self.stored: list[StoredErasure] = []
        self.may_continue = asyncio.Event()

    async def list_all(self) -> list[StoredErasure]:
        found = [*self.stored]
        await self.may_continue.wait()
        return found


async def test_a_slow_look_does_not_hide_what_a_later_one_has_found() -> None:
    """Found by seed 48786 of trials/simulation: a fact was stored after the reply to EraseData."""
    erasures = SlowErasures()
    engine: Any = SimpleNamespace(records=SimpleNamespace(erasures=erasures), eraser=SimpleNamespace(drain_s=3.0))
    refusals = Refusals(engine)
    first = asyncio.create_task(refusals.look())
    await asyncio.sleep(0)
    first_may_continue, erasures.may_continue = erasures.may_continue, asyncio.Event()
    erasures.may_continue.set()
    erasures.stored.append(StoredErasure("1", "acme", "ada", 1, "op", 1))
    await refusals.look()
    first_may_continue.set()
    await first
    with pytest.raises(Erasing):
        refusals.check(Identity("acme", "ada"))
