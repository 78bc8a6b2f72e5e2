"""For each RPC that names something of somebody's: a request for it. A test holds the list against the descriptors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from headrace.v1 import llm_pb2, memory_pb2, tools_pb2
from services.runtime.formats.json_form import rules_of
from tests.support.contract import RPCS
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

    def get_id(self, field: str) -> str:
        """The id that a field of this name has; the run's stands for what was not made yet."""
        return getattr(self, field.removesuffix("_id")) or self.run


ID_FIELDS = ("chat_id", "run_id", "blob_id", "fact_id", "schedule_id", "webhook_id", "key_id")


def make_requests(name: str, ids: Ids) -> list[Message]:
    """Make what a call of the RPC sends; one empty request where it names nothing."""
    kind = RPCS[name].input_type
    if name not in REQUESTS:
        return [GetMessageClass(kind)()]
    if name == "ToolService.UploadFile":
        start = tools_pb2.UploadStart(chat_id=ids.chat, name="notes.txt", size_bytes=5)
        return [tools_pb2.UploadFileRequest(start=start), tools_pb2.UploadFileRequest(data=b"hello")]
    named = {field: ids.get_id(field) for field in ID_FIELDS if field in kind.fields_by_name}
    others = REQUESTS[name]
    return [GetMessageClass(kind)(**named | (others if isinstance(others, dict) else others(ids)))]


def _make_step(_: Ids) -> dict[str, Any]:
    user = llm_pb2.Message(role="user")
    user.content.add(text="hi")
    step = memory_pb2.StepLine(stage="oneshot", seq=9, messages=[{"message": user, "ts": 1}])  # pyright: ignore[reportArgumentType] - a dict is a message to protobuf
    return {"request_id": fresh(), "lines": [memory_pb2.LogLine(step=step)]}


def _begin_run(ids: Ids) -> dict[str, Any]:
    place = {"chat_id": ids.chat, "run_id": ids.run}
    return {"append": place | _make_step(ids), "context": place}


REQUESTS: dict[str, dict[str, Any] | Callable[[Ids], dict[str, Any]]] = {
    "AgentService.Query": {"message": "hi", "agent_key": "plain"},
    "AgentService.Attach": {},
    "AgentService.Submit": {"tool_id": "t_1", "payload": "{}"},
    "AgentService.Cancel": {},
    "AgentService.Steer": {"message": "go on"},
    "AgentService.Compact": {},
    "AgentService.ListRuns": {},
    "AgentService.GetContext": {},
    "AgentService.GetRun": {},
    "AgentService.GetCassette": {},
    "GateService.GetGate": {"gate_id": "c_1"},
    "GateService.AnswerGate": {"gate_id": "c_1", "payload": "{}"},
    "GateService.ClaimGate": {"gate_id": "c_1", "holder": "tab"},
    "GateService.ReleaseGate": {"gate_id": "c_1", "holder": "tab"},
    "GateService.DelegateGate": {"gate_id": "c_1", "to": ["user:eve"]},
    "GateService.AskBack": {"gate_id": "c_1", "note": "why?"},
    "GateService.ListGrants": {},
    "GateService.RevokeGrant": {"grant_id": "grant_1"},
    "GateService.ExportGates": {},
    "MemoryService.ExportGates": {},
    "MemoryService.ListGrants": {},
    "MemoryService.RevokeGrant": {"grant_id": "grant_1"},
    "MemoryService.GetGate": {"gate_id": "c_1"},
    "MemoryService.GetChat": {"include_lines": True},
    "MemoryService.ShareChat": {"shared_with": ["tenant"]},
    "MemoryService.UpdateChat": {"title": "Mine"},
    "MemoryService.ForkChat": {},
    "MemoryService.Append": _make_step,
    "MemoryService.BeginRun": _begin_run,
    "MemoryService.LoadContext": {},
    "MemoryService.ReadHistory": {},
    "MemoryService.ReadResult": {"tool_call_id": "c_1"},
    "MemoryService.Compact": {},
    "MemoryService.ListCheckpoints": {"run_id": None},
    "MemoryService.PinMessage": {"n": 1},
    "MemoryService.ListPins": {},
    "MemoryService.GetSummary": {},
    "MemoryService.EditSummary": {"n": 1, "text": "t"},
    "MemoryService.Revert": {},
    "MemoryService.GetState": {},
    "MemoryService.UpdateState": {"state": "{}"},
    "MemoryService.AcquireLease": {"owner": "me", "ttl_ms": 1000},
    "MemoryService.RenewLease": {"generation": 0, "ttl_ms": 1000},
    "MemoryService.RenewLeases": lambda ids: {"leases": [{"run_id": ids.run}], "ttl_ms": 1000},
    "MemoryService.ReleaseLease": {},
    "MemoryService.ListUnfinishedRuns": {},
    "MemoryService.PutBlob": {"mime_type": "image/png", "data": b"png"},
    "MemoryService.GetBlob": {},
    "ToolService.Execute": {"tool_call_id": "c1", "tool_name": "city_datetime", "arguments": '{"city":"Paris"}'},
    "ToolService.CheckEffect": {"effect_key": "k", "tool_name": "write_file"},
    "ToolService.LinkSkill": {"skill_id": "letter"},
    "ToolService.UploadFile": {},
    "ToolService.ReadFile": {"path": "uploads/notes.txt"},
    "ToolService.ListFiles": {},
    "MemoryService.Remember": lambda ids: {
        "text": "likes tea",
        "source": {"chat_id": ids.chat, "run_id": ids.run},
    },
    "MemoryService.UpdateFact": {"text": "drinks tea"},
    "MemoryService.DeleteFact": {},
    "MemoryService.ListRuns": lambda ids: {"run_ids": [ids.run]},
    "MemoryService.ReserveSpend": {
        "budgets": [{"budget_id": "b", "period": "day", "tokens_max": 1}],
        "least": {},
        "wanted": {},
    },
    "OperatorService.ListRuns": lambda ids: {"run_ids": [ids.run]},
    "OperatorService.GetRun": {"include_events": True},
    "OperatorService.CancelRuns": lambda ids: {"run_ids": [ids.run]},
    "ScheduleService.CreateSchedule": {
        "schedule_id": None,
        "agent_key": "plain",
        "message": "hi",
        "cron": "0 0 1 1 *",
    },
    "ScheduleService.GetSchedule": {},
    "ScheduleService.UpdateSchedule": {"chat_id": None, "name": "n"},
    "ScheduleService.TriggerSchedule": {},
    "ScheduleService.RotateScheduleSecret": {},
    "ScheduleService.RecordFiring": {"firing": {"due_at": 1, "outcome": "missed"}},
    "ScheduleService.DeleteSchedule": {},
    "KeyService.CreateKey": lambda ids: {"key_id": ids.key or ids.chat, "name": "of the test", "user": "cat"},
    "KeyService.GetKey": {},
    "KeyService.UpdateKey": {"roles": ["staff"]},
    "KeyService.RevokeKey": {},
    "WebhookService.CreateWebhook": lambda ids: {
        "webhook_id": ids.webhook or ids.chat,
        "url": "https://hooks.example/",
    },
    "WebhookService.GetWebhook": {},
    "WebhookService.UpdateWebhook": {"name": "n"},
    "WebhookService.RotateSecret": {},
    "WebhookService.PingWebhook": {},
    "WebhookService.ListDeliveries": {},
    "WebhookService.ReplayDeliveries": {},
    "WebhookService.PutRunWebhook": {"config_id": "c", "url": "https://hooks.example/"},
    "WebhookService.ListRunWebhooks": {},
    "WebhookService.DeleteRunWebhook": {"config_id": "c"},
    "WebhookService.DeleteWebhook": {},
    "MemoryService.DeleteChat": {},
}
"""What each says beside the ids of ID_FIELDS, in the order in which an owner may do all of it; None takes an id out."""


def names_ids(kind: Descriptor, depth: int = 3) -> bool:
    """Whether a message, or one in it, has an id of a chat or a run."""
    return any(
        rules_of(field).uuid
        or (depth > 0 and field.message_type is not None and names_ids(field.message_type, depth - 1))
        for field in kind.fields
    )
