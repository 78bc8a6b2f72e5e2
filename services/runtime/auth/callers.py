"""The table of who may call which method; a method without a line is refused.

`client` is every caller outside the suite. A test compares the table with the descriptors.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from google.protobuf.descriptor_pool import Default

from headrace.errors import PermissionDenied
from headrace.v1 import common_pb2
from services.runtime.auth.identity import Identity, check_scope

CLIENT, FACADE, ORCHESTRATOR, LLM_GATEWAY, MEMORY, TOOLS = (
    "client",
    "facade",
    "orchestrator",
    "llm_gateway",
    "memory",
    "tools",
)
SERVICES = frozenset({FACADE, ORCHESTRATOR, LLM_GATEWAY, MEMORY, TOOLS})

_PUBLIC = frozenset({CLIENT, FACADE, ORCHESTRATOR})
_RUNS = frozenset({ORCHESTRATOR})
_MODELS = frozenset({ORCHESTRATOR, MEMORY, TOOLS})

_AGENT, _AUDIT, _DATA, _DATA_STORE, _GATES, _KEYS, _LLM, _MEMORY, _OPERATOR, _SCHEDULES, _SPEND, _TOOLS, _WEBHOOKS = (
    f"/headrace.v1.{name}Service/"
    for name in (
        *("Agent", "Audit", "Data", "DataStore", "Gate", "Key", "Llm", "Memory", "Operator", "Schedule", "Spend"),
        *("Tool", "Webhook"),
    )
)
_A2A = "/lf.a2a.v1.A2AService/"
"""Another protocol, which has no scopes: the RPCs that it calls check them."""


def _allow(service: str, methods: str, callers: frozenset[str]) -> dict[str, frozenset[str]]:
    return {service + method: callers for method in methods.split()}


CALLERS: dict[str, frozenset[str]] = {
    # The orchestrator calls its own replicas: a run's owner answers for the run.
    **_allow(_AGENT, "Query Attach Follow Submit Cancel Steer Compact ListAgents GetAgent ListRuns GetRun", _PUBLIC),
    **_allow(_AGENT, "GetContext GetCassette Embed ListAgentProblems GetIdentity", _PUBLIC),
    **_allow(_AGENT, "ListAgentVersions GetAgentVersion DiffAgentVersions ValidateAgent", _PUBLIC),
    **_allow(_AGENT, "PutAgent DeleteAgent ListStoredAgents GetAgentDefinition", _PUBLIC),
    **_allow(_A2A, "SendMessage SendStreamingMessage GetTask ListTasks CancelTask SubscribeToTask", _PUBLIC),
    **_allow(_A2A, "GetExtendedAgentCard ListTaskPushNotificationConfigs", _PUBLIC),
    **_allow(
        _A2A,
        "CreateTaskPushNotificationConfig GetTaskPushNotificationConfig DeleteTaskPushNotificationConfig",
        _PUBLIC,
    ),
    **_allow(_AUDIT, "ListAudit ExportAudit VerifyAudit", _PUBLIC),
    **_allow(_AUDIT, "RecordAudit", frozenset({FACADE, ORCHESTRATOR, LLM_GATEWAY, TOOLS})),
    **_allow(_DATA, "ExportData EraseData GetErasure ListErasures PlaceHold ListHolds ReleaseHold", _PUBLIC),
    **_allow(_DATA_STORE, "ReadStoredData EraseData GetErasure ListErasures PlaceHold ListHolds ReleaseHold", _RUNS),
    **_allow(_DATA_STORE, "ClaimErasures ListErasedRuns EraseStored FinishErasure", _RUNS),
    **_allow(_DATA_STORE, "ListHoldsInForce", frozenset({TOOLS})),
    **_allow(_DATA_STORE, "CheckErasure", _RUNS | {TOOLS}),
    **_allow(_GATES, "ListGates WatchGates GetGate AnswerGate ClaimGate ReleaseGate DelegateGate AskBack", _PUBLIC),
    **_allow(_GATES, "ListGrants RevokeGrant ExportGates", _PUBLIC),
    **_allow(
        _KEYS,
        "CreateKey ConfirmKey ListKeys GetKey UpdateKey RevokeKey SuspendUser ReleaseUser ListSuspendedUsers",
        _PUBLIC,
    ),
    **_allow(_KEYS, "ReadKeyChanges TakeKeyCalls", frozenset({FACADE, ORCHESTRATOR, TOOLS})),
    **_allow(_LLM, "StreamChat CountTokens ListModels", _MODELS),
    **_allow(_LLM, "ListProviders ListLimits", _RUNS),
    **_allow(_LLM, "Embed", _RUNS | {MEMORY}),
    **_allow(_MEMORY, "GetChat", _PUBLIC | {TOOLS}),
    **_allow(_MEMORY, "ListChats UpdateChat ShareChat DeleteChat ForkChat Search", _PUBLIC),
    **_allow(_MEMORY, "Remember ListFacts RecallFacts UpdateFact DeleteFact ExportFacts", _PUBLIC),
    **_allow(
        _MEMORY, "ListCheckpoints Revert GetState UpdateState PinMessage ListPins GetSummary EditSummary", _PUBLIC
    ),
    **_allow(_MEMORY, "Append BeginRun LoadContext ReadHistory ReadResult Compact PutBlob GetBlob", _RUNS),
    **_allow(_MEMORY, "AcquireLease RenewLease RenewLeases ReleaseLease ListUnfinishedRuns", _RUNS),
    **_allow(
        _SCHEDULES,
        "CreateSchedule ListSchedules GetSchedule UpdateSchedule DeleteSchedule TriggerSchedule",
        _PUBLIC,
    ),
    **_allow(_SCHEDULES, "RotateScheduleSecret", _PUBLIC),
    **_allow(_SCHEDULES, "ReceiveWebhook", _PUBLIC - {CLIENT}),  # for anybody who can sign it
    **_allow(_MEMORY, "ListGates WatchGates WatchChat GetGate ListRuns ReserveSpend MeasureBudgets ListLimits", _RUNS),
    **_allow(_MEMORY, "ListGrants RevokeGrant ExportGates", _RUNS),
    **_allow(_MEMORY, "PutAgentVersion ReadAgentVersion FindAgentVersions", _RUNS),
    **_allow(_MEMORY, "PutAgentDefinition DeleteAgentDefinition ReadAgentChanges", _RUNS),
    **_allow(_OPERATOR, "ListRuns GetRun CancelRuns ListProviders GetLimits ListReplicas", _PUBLIC),
    **_allow(_SCHEDULES, "ListDueSchedules RecordFiring", _RUNS),
    **_allow(_SPEND, "GetUsage", _PUBLIC),
    **_allow(_WEBHOOKS, "CreateWebhook ListWebhooks GetWebhook UpdateWebhook RotateSecret DeleteWebhook", _PUBLIC),
    **_allow(_WEBHOOKS, "PingWebhook ListDeliveries ReplayDeliveries", _PUBLIC),
    **_allow(_WEBHOOKS, "PutRunWebhook ListRunWebhooks DeleteRunWebhook", _PUBLIC - {CLIENT}),
    **_allow(_TOOLS, "ListTools GetTool ListSkills GetViewport UploadFile ReadFile ListFiles", _PUBLIC),
    **_allow(_TOOLS, "CompleteAuthorization ListAuthorizations RevokeAuthorization", _PUBLIC),
    **_allow(_TOOLS, "Execute CheckEffect LinkSkill ListLimits ReadOwnedData EraseOwnedData", _RUNS),
}
"""Callers by the RPC's name on the wire."""

WITHOUT_USER = frozenset(
    {
        _AUDIT + "RecordAudit",
        _DATA_STORE + "ClaimErasures",
        _DATA_STORE + "ListErasedRuns",
        _DATA_STORE + "EraseStored",
        _DATA_STORE + "FinishErasure",
        _DATA_STORE + "ListHoldsInForce",
        _KEYS + "ReadKeyChanges",
        _KEYS + "TakeKeyCalls",
        _MEMORY + "ListUnfinishedRuns",
        _MEMORY + "ReadAgentChanges",
        _MEMORY + "RenewLeases",
        _SCHEDULES + "ListDueSchedules",
        _SCHEDULES + "RecordFiring",
        _SCHEDULES + "ReceiveWebhook",
        _TOOLS + "EraseOwnedData",
    }
)
"""Methods of no user or of all users, which a service calls on its own account."""


def check_caller(caller: str, method: str) -> None:
    if caller not in CALLERS.get(method, frozenset()):
        raise PermissionDenied(f"{caller} may not call {method}", caller=caller)


def check_method_scope(method: str, identity: Identity) -> None:
    """Raise PermissionDenied if the credential has not the scope that the contract wants for the RPC."""
    if scope := find_scope(method):
        check_scope(identity, scope)


@lru_cache(maxsize=1024)
def find_scope(method: str) -> str:
    """Return the scope that the contract names for the RPC, a name of CALLERS; empty: none."""
    return _read_option(method, common_pb2.scope)


def find_audit_event(method: str) -> str:
    """Return the event that the contract says the RPC writes to the audit log; empty: none."""
    return _read_option(method, common_pb2.audit)


def _read_option(method: str, option: Any) -> str:
    if method.startswith(_A2A):
        return ""
    return Default().FindMethodByName(method[1:].replace("/", ".")).GetOptions().Extensions[option]
