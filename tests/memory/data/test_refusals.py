"""What is refused of somebody who is being erased: every RPC of memory that keeps something new of them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.contract import RPCS
from headrace.errors import Erasing
from services.memory.data.erasures import NEW_WORK, Refusals
from services.memory.storage.records.erasures import StoredErasure
from services.runtime.auth.identity import Identity

GOES_ON = {
    "AuditService": "ListAudit ExportAudit VerifyAudit RecordAudit",
    "DataStoreService": "ReadStoredData EraseData GetErasure ListErasures PlaceHold ListHolds ReleaseHold"
    " ClaimErasures ListErasedRuns EraseStored FinishErasure ListHoldsInForce",
    "KeyService": "ListKeys GetKey RevokeKey ReadKeyChanges TakeKeyCalls SuspendUser ReleaseUser ListSuspendedUsers",
    "MemoryService": "ListChats GetChat DeleteChat Search ListFacts RecallFacts DeleteFact ExportFacts LoadContext"
    " ReadHistory ReadResult ListCheckpoints ListPins GetSummary GetState GetBlob ListUnfinishedRuns ListGates"
    " WatchGates ListRuns ReadAgentVersion FindAgentVersions DeleteAgentDefinition ReadAgentChanges GetGate ListGrants"
    " WatchChat RevokeGrant ExportGates ListLimits MeasureBudgets"
    # Runs come to their end.
    " Append AcquireLease RenewLease RenewLeases ReleaseLease ReserveSpend",
    "ScheduleService": "ListSchedules GetSchedule DeleteSchedule ListDueSchedules RecordFiring"
    # It goes with its schedule, and its run does not begin.
    " ReceiveWebhook",
    "SpendService": "GetUsage",
    "WebhookService": "ListWebhooks GetWebhook DeleteWebhook ListDeliveries ListRunWebhooks DeleteRunWebhook",
}
"""What reads, deletes, or ends what was begun."""


def test_each_rpc_of_memory_is_refused_or_named_here() -> None:
    rpcs = {path for path, rpc in RPCS.items() if rpc.server == "memory"}
    going = {f"/headrace.v1.{service}/{name}" for service, names in GOES_ON.items() for name in names.split()}
    assert going | NEW_WORK == rpcs
    assert not going & NEW_WORK


class SlowErasures:
    """Records that are read at once, and told when the reader is let go on."""

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
    engine: Any = SimpleNamespace(records=SimpleNamespace(erasures=erasures), eraser=SimpleNamespace(settles_s=3.0))
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
