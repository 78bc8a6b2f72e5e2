"""For each RPC that names something of somebody's: a request for it. A test holds the list against the descriptors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from headrace.v1 import (
    agent_pb2,
    gates_pb2,
    keys_pb2,
    llm_pb2,
    memory_pb2,
    operator_pb2,
    schedule_pb2,
    tools_pb2,
    webhook_pb2,
)
from services.runtime.formats.json_form import rules_of
from tests.support.tenants.suite import fresh


@dataclass(frozen=True)
class Ids:
    """Of a chat and a run, and what is in them."""

    chat: str
    run: str
    blob: str = "0" * 64
    fact: str = ""
    schedule: str = ""
    webhook: str = ""
    key: str = ""


Make: TypeAlias = Callable[[Ids], list[Message]]


def _schedule_of(ids: Ids) -> str:
    return ids.schedule or ids.run


def _webhook_of(ids: Ids) -> str:
    return ids.webhook or ids.run


def _key_of(ids: Ids) -> str:
    return ids.key or ids.run


def _one(make: Callable[[Ids], Message]) -> Make:
    return lambda ids: [make(ids)]


def _upload(ids: Ids) -> list[Message]:
    start = tools_pb2.UploadStart(chat_id=ids.chat, name="notes.txt", size_bytes=5)
    return [tools_pb2.UploadFileRequest(start=start), tools_pb2.UploadFileRequest(data=b"hello")]


def _step(ids: Ids) -> memory_pb2.LogLine:
    user = llm_pb2.Message(role="user")
    user.content.add(text="hi")
    return memory_pb2.LogLine(step=memory_pb2.StepLine(stage="oneshot", seq=9, messages=[{"message": user, "ts": 1}]))  # pyright: ignore[reportArgumentType] - a dict is a message to protobuf


REQUESTS: dict[str, Make] = {
    "AgentService.Query": _one(lambda ids: agent_pb2.QueryRequest(message="hi", chat_id=ids.chat, agent_key="plain")),
    "AgentService.Attach": _one(lambda ids: agent_pb2.AttachRequest(run_id=ids.run)),
    "AgentService.Submit": _one(
        lambda ids: agent_pb2.SubmitRequest(run_id=ids.run, chat_id=ids.chat, tool_id="t_1", payload="{}")
    ),
    "AgentService.Cancel": _one(lambda ids: agent_pb2.CancelRequest(run_id=ids.run)),
    "AgentService.Steer": _one(lambda ids: agent_pb2.SteerRequest(run_id=ids.run, message="go on")),
    "AgentService.Compact": _one(lambda ids: agent_pb2.CompactChatRequest(chat_id=ids.chat)),
    "AgentService.ListRuns": _one(lambda ids: agent_pb2.ListRunsRequest(chat_id=ids.chat)),
    "AgentService.GetContext": _one(lambda ids: agent_pb2.GetContextRequest(chat_id=ids.chat, run_id=ids.run)),
    "AgentService.GetRun": _one(lambda ids: agent_pb2.GetRunRequest(run_id=ids.run)),
    "AgentService.GetCassette": _one(lambda ids: agent_pb2.GetCassetteRequest(run_id=ids.run)),
    "GateService.GetGate": _one(lambda ids: gates_pb2.GetGateRequest(run_id=ids.run, gate_id="c_1")),
    "GateService.AnswerGate": _one(
        lambda ids: gates_pb2.AnswerGateRequest(run_id=ids.run, gate_id="c_1", payload="{}")
    ),
    "GateService.ClaimGate": _one(lambda ids: gates_pb2.ClaimGateRequest(run_id=ids.run, gate_id="c_1", holder="tab")),
    "GateService.ReleaseGate": _one(
        lambda ids: gates_pb2.ReleaseGateRequest(run_id=ids.run, gate_id="c_1", holder="tab")
    ),
    "GateService.DelegateGate": _one(
        lambda ids: gates_pb2.DelegateGateRequest(run_id=ids.run, gate_id="c_1", to=["user:eve"])
    ),
    "GateService.AskBack": _one(lambda ids: gates_pb2.AskBackRequest(run_id=ids.run, gate_id="c_1", note="why?")),
    "GateService.ListGrants": _one(lambda ids: gates_pb2.ListGrantsRequest(chat_id=ids.chat)),
    "GateService.RevokeGrant": _one(lambda ids: gates_pb2.RevokeGrantRequest(chat_id=ids.chat, grant_id="grant_1")),
    "GateService.ExportGates": _one(lambda ids: gates_pb2.ExportGatesRequest(chat_id=ids.chat)),
    "MemoryService.ExportGates": _one(lambda ids: gates_pb2.ExportGatesRequest(chat_id=ids.chat)),
    "MemoryService.ListGrants": _one(lambda ids: gates_pb2.ListGrantsRequest(chat_id=ids.chat)),
    "MemoryService.RevokeGrant": _one(lambda ids: gates_pb2.RevokeGrantRequest(chat_id=ids.chat, grant_id="grant_1")),
    "MemoryService.GetGate": _one(lambda ids: gates_pb2.GetGateRequest(run_id=ids.run, gate_id="c_1")),
    "MemoryService.GetChat": _one(
        lambda ids: memory_pb2.GetChatRequest(chat_id=ids.chat, run_id=ids.run, include_lines=True)
    ),
    "MemoryService.ShareChat": _one(lambda ids: memory_pb2.ShareChatRequest(chat_id=ids.chat, shared_with=["tenant"])),
    "MemoryService.UpdateChat": _one(lambda ids: memory_pb2.UpdateChatRequest(chat_id=ids.chat, title="Mine")),
    "MemoryService.ForkChat": _one(lambda ids: memory_pb2.ForkChatRequest(chat_id=ids.chat, run_id=ids.run)),
    "MemoryService.Append": _one(
        lambda ids: memory_pb2.AppendRequest(chat_id=ids.chat, run_id=ids.run, request_id=fresh(), lines=[_step(ids)])
    ),
    "MemoryService.BeginRun": _one(
        lambda ids: memory_pb2.BeginRunRequest(
            append=memory_pb2.AppendRequest(chat_id=ids.chat, run_id=ids.run, request_id=fresh(), lines=[_step(ids)]),
            context=memory_pb2.LoadContextRequest(chat_id=ids.chat, run_id=ids.run),
        )
    ),
    "MemoryService.LoadContext": _one(lambda ids: memory_pb2.LoadContextRequest(chat_id=ids.chat, run_id=ids.run)),
    "MemoryService.ReadHistory": _one(lambda ids: memory_pb2.ReadHistoryRequest(chat_id=ids.chat, run_id=ids.run)),
    "MemoryService.ReadResult": _one(
        lambda ids: memory_pb2.ReadResultRequest(chat_id=ids.chat, run_id=ids.run, tool_call_id="c_1")
    ),
    "MemoryService.Compact": _one(lambda ids: memory_pb2.CompactRequest(chat_id=ids.chat, run_id=ids.run)),
    "MemoryService.ListCheckpoints": _one(lambda ids: memory_pb2.ListCheckpointsRequest(chat_id=ids.chat)),
    "MemoryService.PinMessage": _one(lambda ids: memory_pb2.PinMessageRequest(chat_id=ids.chat, n=1)),
    "MemoryService.ListPins": _one(lambda ids: memory_pb2.ListPinsRequest(chat_id=ids.chat)),
    "MemoryService.GetSummary": _one(lambda ids: memory_pb2.GetSummaryRequest(chat_id=ids.chat)),
    "MemoryService.EditSummary": _one(lambda ids: memory_pb2.EditSummaryRequest(chat_id=ids.chat, n=1, text="t")),
    "MemoryService.Revert": _one(lambda ids: memory_pb2.RevertRequest(chat_id=ids.chat, run_id=ids.run)),
    "MemoryService.GetState": _one(lambda ids: memory_pb2.GetStateRequest(chat_id=ids.chat)),
    "MemoryService.UpdateState": _one(
        lambda ids: memory_pb2.UpdateStateRequest(chat_id=ids.chat, run_id=ids.run, state="{}")
    ),
    "MemoryService.AcquireLease": _one(
        lambda ids: memory_pb2.AcquireLeaseRequest(chat_id=ids.chat, run_id=ids.run, owner="me", ttl_ms=1000)
    ),
    "MemoryService.RenewLease": _one(
        lambda ids: memory_pb2.RenewLeaseRequest(run_id=ids.run, generation=0, ttl_ms=1000)
    ),
    "MemoryService.RenewLeases": _one(
        lambda ids: memory_pb2.RenewLeasesRequest(leases=[memory_pb2.HeldLease(run_id=ids.run)], ttl_ms=1000)
    ),
    "MemoryService.ReleaseLease": _one(lambda ids: memory_pb2.ReleaseLeaseRequest(run_id=ids.run)),
    "MemoryService.ListUnfinishedRuns": _one(lambda ids: memory_pb2.ListUnfinishedRunsRequest(run_id=ids.run)),
    "MemoryService.PutBlob": _one(
        lambda ids: memory_pb2.PutBlobRequest(chat_id=ids.chat, mime_type="image/png", data=b"png")
    ),
    "MemoryService.GetBlob": _one(lambda ids: memory_pb2.GetBlobRequest(chat_id=ids.chat, blob_id=ids.blob)),
    "ToolService.Execute": _one(
        lambda ids: tools_pb2.ExecuteRequest(
            run_id=ids.run, chat_id=ids.chat, tool_call_id="c1", tool_name="city_datetime", arguments='{"city":"Paris"}'
        )
    ),
    "ToolService.CheckEffect": _one(
        lambda ids: tools_pb2.CheckEffectRequest(chat_id=ids.chat, effect_key="k", tool_name="write_file")
    ),
    "ToolService.LinkSkill": _one(lambda ids: tools_pb2.LinkSkillRequest(chat_id=ids.chat, skill_id="letter")),
    "ToolService.UploadFile": _upload,
    "ToolService.ReadFile": _one(lambda ids: tools_pb2.ReadFileRequest(chat_id=ids.chat, path="uploads/notes.txt")),
    "ToolService.ListFiles": _one(lambda ids: tools_pb2.ListFilesRequest(chat_id=ids.chat)),
    "MemoryService.Remember": _one(
        lambda ids: memory_pb2.RememberRequest(
            text="likes tea", source=memory_pb2.FactSource(chat_id=ids.chat, run_id=ids.run)
        )
    ),
    "MemoryService.UpdateFact": _one(
        lambda ids: memory_pb2.UpdateFactRequest(fact_id=ids.fact or ids.run, text="drinks tea")
    ),
    "MemoryService.DeleteFact": _one(lambda ids: memory_pb2.DeleteFactRequest(fact_id=ids.fact or ids.run)),
    "MemoryService.ListRuns": _one(lambda ids: operator_pb2.OperatorListRunsRequest(run_ids=[ids.run])),
    "MemoryService.ReserveSpend": _one(
        lambda ids: memory_pb2.ReserveSpendRequest(
            run_id=ids.run,
            budgets=[memory_pb2.SpendBudget(budget_id="b", period="day", tokens_max=1)],
            least=memory_pb2.SpendAmount(),
            wanted=memory_pb2.SpendAmount(),
        )
    ),
    "OperatorService.ListRuns": _one(lambda ids: operator_pb2.OperatorListRunsRequest(run_ids=[ids.run])),
    "OperatorService.GetRun": _one(lambda ids: operator_pb2.OperatorGetRunRequest(run_id=ids.run, include_events=True)),
    "OperatorService.CancelRuns": _one(lambda ids: operator_pb2.CancelRunsRequest(run_ids=[ids.run])),
    "ScheduleService.CreateSchedule": _one(
        lambda ids: schedule_pb2.CreateScheduleRequest(
            agent_key="plain", message="hi", cron="0 0 1 1 *", chat_id=ids.chat
        )
    ),
    "ScheduleService.GetSchedule": _one(lambda ids: schedule_pb2.GetScheduleRequest(schedule_id=_schedule_of(ids))),
    "ScheduleService.UpdateSchedule": _one(
        lambda ids: schedule_pb2.UpdateScheduleRequest(schedule_id=_schedule_of(ids), name="n")
    ),
    "ScheduleService.TriggerSchedule": _one(
        lambda ids: schedule_pb2.TriggerScheduleRequest(schedule_id=_schedule_of(ids))
    ),
    "ScheduleService.RotateScheduleSecret": _one(
        lambda ids: schedule_pb2.RotateScheduleSecretRequest(schedule_id=_schedule_of(ids))
    ),
    "ScheduleService.RecordFiring": _one(
        lambda ids: schedule_pb2.RecordFiringRequest(
            schedule_id=_schedule_of(ids), firing=schedule_pb2.Firing(due_at=1, outcome="missed")
        )
    ),
    "ScheduleService.DeleteSchedule": _one(
        lambda ids: schedule_pb2.DeleteScheduleRequest(schedule_id=_schedule_of(ids))
    ),
    "KeyService.CreateKey": _one(
        lambda ids: keys_pb2.CreateKeyRequest(key_id=ids.key or ids.chat, name="of the test", user="cat")
    ),
    "KeyService.GetKey": _one(lambda ids: keys_pb2.GetKeyRequest(key_id=_key_of(ids))),
    "KeyService.UpdateKey": _one(lambda ids: keys_pb2.UpdateKeyRequest(key_id=_key_of(ids), roles=["staff"])),
    "KeyService.RevokeKey": _one(lambda ids: keys_pb2.RevokeKeyRequest(key_id=_key_of(ids))),
    "WebhookService.CreateWebhook": _one(
        lambda ids: webhook_pb2.CreateWebhookRequest(webhook_id=ids.webhook or ids.chat, url="https://hooks.example/")
    ),
    "WebhookService.GetWebhook": _one(lambda ids: webhook_pb2.GetWebhookRequest(webhook_id=_webhook_of(ids))),
    "WebhookService.UpdateWebhook": _one(
        lambda ids: webhook_pb2.UpdateWebhookRequest(webhook_id=_webhook_of(ids), name="n")
    ),
    "WebhookService.RotateSecret": _one(lambda ids: webhook_pb2.RotateSecretRequest(webhook_id=_webhook_of(ids))),
    "WebhookService.PingWebhook": _one(lambda ids: webhook_pb2.PingWebhookRequest(webhook_id=_webhook_of(ids))),
    "WebhookService.ListDeliveries": _one(lambda ids: webhook_pb2.ListDeliveriesRequest(webhook_id=_webhook_of(ids))),
    "WebhookService.ReplayDeliveries": _one(
        lambda ids: webhook_pb2.ReplayDeliveriesRequest(webhook_id=_webhook_of(ids))
    ),
    "WebhookService.PutRunWebhook": _one(
        lambda ids: webhook_pb2.PutRunWebhookRequest(run_id=ids.run, config_id="c", url="https://hooks.example/")
    ),
    "WebhookService.ListRunWebhooks": _one(lambda ids: webhook_pb2.ListRunWebhooksRequest(run_id=ids.run)),
    "WebhookService.DeleteRunWebhook": _one(
        lambda ids: webhook_pb2.DeleteRunWebhookRequest(run_id=ids.run, config_id="c")
    ),
    "WebhookService.DeleteWebhook": _one(lambda ids: webhook_pb2.DeleteWebhookRequest(webhook_id=_webhook_of(ids))),
    "MemoryService.DeleteChat": _one(lambda ids: memory_pb2.DeleteChatRequest(chat_id=ids.chat)),
}
"""In the order in which an owner may do all of it."""


def names_ids(kind: Descriptor, depth: int = 3) -> bool:
    """Whether a message, or one in it, has an id of a chat or a run."""
    return any(
        rules_of(field).uuid
        or (depth > 0 and field.message_type is not None and names_ids(field.message_type, depth - 1))
        for field in kind.fields
    )
