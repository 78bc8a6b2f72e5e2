"""The contract as it was agreed: routes, event names, and rules that a machine can hold every field to.

buf checks style and comments; this checks what only we know.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from google.api import annotations_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor

from headrace.v1 import (
    agent_pb2,
    audit_pb2,
    common_pb2,
    data_pb2,
    gates_pb2,
    keys_pb2,
    limits_pb2,
    llm_pb2,
    memory_pb2,
    operator_pb2,
    schedule_pb2,
    spend_pb2,
    tools_pb2,
    webhook_pb2,
)
from services.runtime.formats.json_form import rules_of

FILES = [
    module.DESCRIPTOR
    for module in (
        common_pb2,
        agent_pb2,
        audit_pb2,
        data_pb2,
        gates_pb2,
        keys_pb2,
        limits_pb2,
        llm_pb2,
        memory_pb2,
        operator_pb2,
        schedule_pb2,
        spend_pb2,
        tools_pb2,
        webhook_pb2,
    )
]

RPCS = {
    "AgentService": "Query> Attach> Submit Cancel Steer Compact> ListAgents GetAgent ListAgentProblems GetIdentity"
    " ListRuns Embed GetContext GetCassette GetRun ListAgentVersions GetAgentVersion DiffAgentVersions"
    " ValidateAgent PutAgent DeleteAgent ListStoredAgents GetAgentDefinition",
    "AuditService": "ListAudit ExportAudit> VerifyAudit RecordAudit",
    "DataService": "ExportData> EraseData GetErasure ListErasures PlaceHold ListHolds ReleaseHold",
    "DataStoreService": "ReadStoredData> EraseData GetErasure ListErasures PlaceHold ListHolds ReleaseHold"
    " ClaimErasures ListErasedRuns EraseStored FinishErasure ListHoldsInForce CheckErasure",
    "GateService": "ListGates WatchGates> GetGate AnswerGate ClaimGate ReleaseGate DelegateGate AskBack"
    " ListGrants RevokeGrant ExportGates>",
    "KeyService": "CreateKey ListKeys GetKey UpdateKey RevokeKey ReadKeyChanges TakeKeyCalls",
    "LlmService": "StreamChat> CountTokens Embed ListModels ListProviders ListLimits",
    "MemoryService": "ListChats GetChat UpdateChat ShareChat DeleteChat ForkChat Search Remember Append BeginRun"
    " LoadContext ReadHistory ReadResult Compact> ListCheckpoints Revert PinMessage ListPins GetSummary EditSummary"
    " GetState UpdateState AcquireLease RenewLease RenewLeases ReleaseLease PutBlob GetBlob"
    " ListUnfinishedRuns ListGates WatchGates> GetGate ListRuns ReserveSpend MeasureBudgets ListLimits"
    " PutAgentVersion ReadAgentVersion PutAgentDefinition DeleteAgentDefinition ReadAgentChanges"
    " FindAgentVersions ListGrants RevokeGrant ExportGates> ListFacts RecallFacts UpdateFact"
    " DeleteFact ExportFacts",
    "OperatorService": "ListRuns GetRun CancelRuns ListProviders GetLimits ListReplicas",
    "ScheduleService": "CreateSchedule ListSchedules GetSchedule UpdateSchedule DeleteSchedule TriggerSchedule"
    " RotateScheduleSecret ReceiveWebhook ListDueSchedules RecordFiring",
    "SpendService": "GetUsage",
    "ToolService": "ListTools GetTool Execute> CheckEffect ListSkills LinkSkill GetViewport <UploadFile ReadFile>"
    " ListFiles CompleteAuthorization ListAuthorizations RevokeAuthorization ListLimits ReadOwnedData> EraseOwnedData",
    "WebhookService": "CreateWebhook ListWebhooks GetWebhook UpdateWebhook RotateSecret DeleteWebhook PingWebhook"
    " ListDeliveries ReplayDeliveries PutRunWebhook ListRunWebhooks DeleteRunWebhook",
}
"""All RPCs; > marks a stream of replies, < a stream of requests."""

ROUTES = {
    "GET /api/agents": "AgentService.ListAgents",
    "GET /api/agent": "AgentService.GetAgent",
    "GET /api/agent/versions": "AgentService.ListAgentVersions",
    "GET /api/agent/version": "AgentService.GetAgentVersion",
    "GET /api/agent/diff": "AgentService.DiffAgentVersions",
    "POST /api/agent/validate": "AgentService.ValidateAgent",
    "POST /api/agent": "AgentService.PutAgent",
    "DELETE /api/agent": "AgentService.DeleteAgent",
    "GET /api/agents/stored": "AgentService.ListStoredAgents",
    "GET /api/agent/definition": "AgentService.GetAgentDefinition",
    "GET /api/agents/problems": "AgentService.ListAgentProblems",
    "GET /api/identity": "AgentService.GetIdentity",
    "POST /api/query": "AgentService.Query",
    "GET /api/attach": "AgentService.Attach",
    "POST /api/submit": "AgentService.Submit",
    "POST /api/cancel": "AgentService.Cancel",
    "POST /api/steer": "AgentService.Steer",
    "POST /api/compact": "AgentService.Compact",
    "GET /api/data/export": "DataService.ExportData",
    "POST /api/data/erase": "DataService.EraseData",
    "GET /api/data/erasure": "DataService.GetErasure",
    "GET /api/data/erasures": "DataService.ListErasures",
    "POST /api/data/holds": "DataService.PlaceHold",
    "GET /api/data/holds": "DataService.ListHolds",
    "POST /api/data/hold/release": "DataService.ReleaseHold",
    "GET /api/chats": "MemoryService.ListChats",
    "GET /api/chat": "MemoryService.GetChat",
    "POST /api/chat": "MemoryService.UpdateChat",
    "DELETE /api/chat": "MemoryService.DeleteChat",
    "POST /api/chat/share": "MemoryService.ShareChat",
    "GET /api/search": "MemoryService.Search",
    "POST /api/chat/fork": "MemoryService.ForkChat",
    "GET /api/chat/checkpoints": "MemoryService.ListCheckpoints",
    "POST /api/chat/revert": "MemoryService.Revert",
    "POST /api/chat/pin": "MemoryService.PinMessage",
    "GET /api/chat/pins": "MemoryService.ListPins",
    "GET /api/chat/summary": "MemoryService.GetSummary",
    "POST /api/chat/summary": "MemoryService.EditSummary",
    "GET /api/chat/state": "MemoryService.GetState",
    "POST /api/chat/state": "MemoryService.UpdateState",
    "POST /api/facts": "MemoryService.Remember",
    "GET /api/facts": "MemoryService.ListFacts",
    "GET /api/facts/search": "MemoryService.RecallFacts",
    "GET /api/facts/export": "MemoryService.ExportFacts",
    "POST /api/fact": "MemoryService.UpdateFact",
    "DELETE /api/fact": "MemoryService.DeleteFact",
    "POST /api/schedules": "ScheduleService.CreateSchedule",
    "GET /api/schedules": "ScheduleService.ListSchedules",
    "GET /api/schedule": "ScheduleService.GetSchedule",
    "POST /api/schedule": "ScheduleService.UpdateSchedule",
    "DELETE /api/schedule": "ScheduleService.DeleteSchedule",
    "POST /api/schedule/trigger": "ScheduleService.TriggerSchedule",
    "POST /api/schedule/secret": "ScheduleService.RotateScheduleSecret",
    "POST /hooks/{schedule_id}": "ScheduleService.ReceiveWebhook",
    "GET /api/usage": "SpendService.GetUsage",
    "POST /api/webhooks": "WebhookService.CreateWebhook",
    "GET /api/webhooks": "WebhookService.ListWebhooks",
    "GET /api/webhook": "WebhookService.GetWebhook",
    "POST /api/webhook": "WebhookService.UpdateWebhook",
    "POST /api/webhook/secret": "WebhookService.RotateSecret",
    "DELETE /api/webhook": "WebhookService.DeleteWebhook",
    "POST /api/webhook/ping": "WebhookService.PingWebhook",
    "GET /api/webhook/deliveries": "WebhookService.ListDeliveries",
    "POST /api/webhook/replay": "WebhookService.ReplayDeliveries",
    "GET /api/audit": "AuditService.ListAudit",
    "GET /api/audit/export": "AuditService.ExportAudit",
    "GET /api/audit/verify": "AuditService.VerifyAudit",
    "POST /api/keys": "KeyService.CreateKey",
    "GET /api/keys": "KeyService.ListKeys",
    "GET /api/key": "KeyService.GetKey",
    "POST /api/key": "KeyService.UpdateKey",
    "POST /api/key/revoke": "KeyService.RevokeKey",
    "GET /api/runs": "AgentService.ListRuns",
    "GET /api/context": "AgentService.GetContext",
    "GET /api/cassette": "AgentService.GetCassette",
    "GET /api/run": "AgentService.GetRun",
    "GET /api/gates": "GateService.ListGates",
    "GET /api/gates/watch": "GateService.WatchGates",
    "GET /api/gate": "GateService.GetGate",
    "POST /api/gate/answer": "GateService.AnswerGate",
    "POST /api/gate/delegate": "GateService.DelegateGate",
    "POST /api/gate/ask": "GateService.AskBack",
    "GET /api/gates/export": "GateService.ExportGates",
    "GET /api/grants": "GateService.ListGrants",
    "POST /api/grant/revoke": "GateService.RevokeGrant",
    "GET /api/operator/runs": "OperatorService.ListRuns",
    "GET /api/operator/run": "OperatorService.GetRun",
    "POST /api/operator/runs/cancel": "OperatorService.CancelRuns",
    "GET /api/operator/providers": "OperatorService.ListProviders",
    "GET /api/operator/limits": "OperatorService.GetLimits",
    "GET /api/operator/replicas": "OperatorService.ListReplicas",
    "POST /api/gate/claim": "GateService.ClaimGate",
    "POST /api/gate/release": "GateService.ReleaseGate",
    "POST /api/embeddings": "AgentService.Embed",
    "GET /api/tools": "ToolService.ListTools",
    "GET /api/tool": "ToolService.GetTool",
    "GET /api/skills": "ToolService.ListSkills",
    "POST /api/mcp/authorization": "ToolService.CompleteAuthorization",
    "GET /api/mcp/authorizations": "ToolService.ListAuthorizations",
    "DELETE /api/mcp/authorization": "ToolService.RevokeAuthorization",
    "POST /api/upload": "ToolService.UploadFile",
    "GET /api/resource": "ToolService.ReadFile",
    "GET /api/viewport": "ToolService.GetViewport",
}

EVENT_NAMES = """
    request.query request.upload request.submit request.steer chat.start
    run.start run.complete run.cancel run.error run.notice plan.create plan.update
    task.start task.complete task.cancel task.fail
    reasoning.start reasoning.delta reasoning.end reasoning.snapshot
    content.start content.delta content.end content.snapshot
    tool.start tool.args tool.end tool.output tool.result tool.snapshot
    action.start action.args action.end action.param action.result action.snapshot
    source.snapshot artifact.publish subagent.start subagent.end
    compaction.start compaction.complete compaction.fallback compaction.fail
    attempt.reset approval.ask approval.answer gate.open gate.close gate.step grant.make grant.use
"""

JSON_BY_NATURE = {"params", "payload", "arguments", "tool_params", "param", "details"}
"""Names that are JSON wherever they stand in an event; `result` and `delta` are text wherever they stand."""


def methods() -> Iterator[MethodDescriptor]:
    for file in FILES:
        for service in file.services_by_name.values():
            yield from service.methods


def messages(*roots: Descriptor) -> dict[str, Descriptor]:
    """`roots`, and the messages of ours that their fields hold, at any depth."""
    found, waiting = dict[str, Descriptor](), list(roots)
    while waiting:
        message = waiting.pop()
        if message.full_name not in found and message.file.package == "headrace.v1":
            found[message.full_name] = message
            waiting += [field.message_type for field in message.fields if field.message_type is not None]
    return found


def fields(*roots: Descriptor) -> list[FieldDescriptor]:
    return [field for message in messages(*roots).values() for field in message.fields]


HTTP: Any = annotations_pb2.http
ALL_MESSAGES = [message for file in FILES for message in file.message_types_by_name.values()]


def route(method: MethodDescriptor) -> str | None:
    if not method.GetOptions().HasExtension(HTTP):
        return None
    rule = method.GetOptions().Extensions[HTTP]
    verb = rule.WhichOneof("pattern")
    assert verb is not None
    return f"{verb.upper()} {getattr(rule, verb)}"


def is_text(field: FieldDescriptor) -> bool:
    return field.type == FieldDescriptor.TYPE_STRING


def test_every_rpc_of_the_architecture_is_there_and_streams_as_it_says() -> None:
    found: dict[str, list[str]] = {}
    for method in methods():
        marked = "<" * method.client_streaming + method.name + ">" * method.server_streaming
        found.setdefault(method.containing_service.name, []).append(marked)
    assert {name: set(rpcs) for name, rpcs in found.items()} == {name: set(rpcs.split()) for name, rpcs in RPCS.items()}


def test_the_routes_are_those_of_the_http_contract() -> None:
    found = {route(method): f"{method.containing_service.name}.{method.name}" for method in methods() if route(method)}
    assert found == ROUTES


def test_a_body_is_taken_whole_and_an_answers_body_is_a_field_of_it() -> None:
    for method in methods():
        rule = method.GetOptions().Extensions[HTTP]
        whole = "payload" if method.name == "ReceiveWebhook" else "*"  # whose signature is of the body as it came
        assert rule.body == (whole if rule.post else "")
        assert not rule.additional_bindings
        if rule.response_body:
            assert rule.response_body in method.output_type.fields_by_name


def payloads() -> dict[str, Descriptor]:
    """The payloads of AgentDelta by their fields' names."""
    fields = agent_pb2.AgentDelta.DESCRIPTOR.oneofs_by_name["payload"].fields
    return {field.name: field.message_type for field in fields if field.message_type is not None}


def test_events_have_the_names_of_the_event_contract() -> None:
    assert sorted(name.replace("_", ".", 1) for name in payloads()) == sorted(EVENT_NAMES.split())
    for name, message in payloads().items():
        assert message.name == name.replace("_", " ").title().replace(" ", "")


def test_an_events_fields_do_not_collide_with_the_envelope() -> None:
    allowed = {("task_id", name) for name in ("TaskStart", "TaskComplete", "TaskCancel", "TaskFail")}
    allowed |= {("subagent_id", name) for name in ("SubagentStart", "SubagentEnd")}
    envelope = {"seq", "type", "timestamp", "subagent_id", "task_id"}
    collisions = {(field.name, message.name) for message in payloads().values() for field in message.fields}
    assert {found for found in collisions if found[0] in envelope} == allowed


def test_what_is_json_by_nature_is_embedded_as_json_and_text_is_not() -> None:
    for field in fields(agent_pb2.AgentDelta.DESCRIPTOR):
        if field.name in JSON_BY_NATURE:
            assert rules_of(field).json, field.full_name
        if field.name in ("result", "delta", "text"):
            assert not rules_of(field).json, field.full_name


def test_a_rule_stands_only_where_it_can_be_checked() -> None:
    for field in [field for message in ALL_MESSAGES for field in message.fields]:
        rules = rules_of(field)
        if rules.json or rules.uuid or rules.words or rules.bytes_max:
            assert is_text(field), field.full_name
            assert rules.uuid or not field.is_repeated, field.full_name  # each item is an id
        if rules.items_max or rules.omit_empty:
            assert field.is_repeated, field.full_name
        if rules.required:
            assert is_text(field) or field.message_type is not None, field.full_name
        if rules.alias:
            assert rules.alias not in {other.json_name for other in field.containing_type.fields}, field.full_name


@pytest.mark.parametrize("method", [method for method in methods() if route(method)], ids=lambda method: method.name)
def test_everything_that_a_caller_outside_can_send_has_a_bound(method: MethodDescriptor) -> None:
    """JSON counts as bound: its depth is, and its size is that of a message."""
    for field in fields(method.input_type):
        rules = rules_of(field)
        if field.is_repeated:
            assert rules.items_max, field.full_name
        elif is_text(field):
            assert rules.bytes_max or rules.uuid or rules.words or rules.json, field.full_name


@pytest.mark.parametrize("method", list(methods()), ids=lambda method: method.full_name.removeprefix("headrace.v1."))
def test_ids_of_chats_and_runs_in_requests_are_uuids(method: MethodDescriptor) -> None:
    for field in method.input_type.fields:
        if field.name in ("chat_id", "run_id"):
            assert rules_of(field).uuid, field.full_name


def test_an_enum_would_have_to_be_argued_for() -> None:
    """Words with a fixed set of values are strings, in the contract and in JSON alike."""
    assert [name for file in FILES for name in file.enum_types_by_name] == []
