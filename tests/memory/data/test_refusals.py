"""What is refused of somebody who is being erased: every RPC of memory that keeps something new of them."""

from __future__ import annotations

from google.protobuf.descriptor_pool import Default

from services.memory.data.refusals import NEW_WORK

GOES_ON = {
    "AuditService": "ListAudit ExportAudit VerifyAudit RecordAudit",
    "DataStoreService": "ReadStoredData EraseData GetErasure ListErasures PlaceHold ListHolds ReleaseHold"
    " ClaimErasures ListErasedRuns EraseStored FinishErasure ListHoldsInForce",
    "KeyService": "ListKeys GetKey RevokeKey ReadKeyChanges TakeKeyCalls",
    "MemoryService": "ListChats GetChat DeleteChat Search ListFacts RecallFacts DeleteFact ExportFacts LoadContext"
    " ReadHistory ReadResult ListCheckpoints ListPins GetSummary GetState GetBlob ListUnfinishedRuns ListGates"
    " WatchGates ListRuns ReadAgentVersion FindAgentVersions DeleteAgentDefinition ReadAgentChanges GetGate ListGrants"
    " RevokeGrant ExportGates ListLimits MeasureBudgets"
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
    files = {"MemoryService": "memory", "AuditService": "audit", "KeyService": "keys", "ScheduleService": "schedule"}
    files |= {"SpendService": "spend", "WebhookService": "webhook", "DataStoreService": "data"}
    rpcs: set[str] = set()
    for service, file in files.items():
        found = Default().FindFileByName(f"headrace/v1/{file}.proto").services_by_name[service]
        rpcs |= {f"/{found.full_name}/{rpc.name}" for rpc in found.methods}
    going = {f"/headrace.v1.{service}/{name}" for service, names in GOES_ON.items() for name in names.split()}
    assert going | NEW_WORK == rpcs
    assert not going & NEW_WORK
