"""A request for each RPC that names a user's resource."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from services.runtime.formats.json_form import rules_of
from tests.support.contract import RPCS
from tests.support.tenants.suite import fresh


@dataclass(frozen=True)
class Ids:
    """Ids of a chat, a run and the resources in them."""

    chat: str
    run: str
    blob: str = "0" * 64
    fact: str = ""
    schedule: str = ""
    webhook: str = ""
    key: str = ""

    @property
    def fields(self) -> dict[str, Any]:
        """The ids by the names of the fields that have them. Where there is no such thing, the run's id is named."""
        own = {name: getattr(self, name) or self.run for name in ("fact", "schedule", "webhook", "key")}
        ids = {"chat": self.chat, "run": self.run, "blob": self.blob} | own
        return {f"{name}_id": value for name, value in ids.items()} | {"run_ids": [self.run]}


def _describe_step(ids: Ids) -> dict[str, Any]:
    message = {"message": {"role": "user", "content": [{"text": "hi"}]}, "ts": 1}
    line = {"step": {"stage": "oneshot", "seq": 9, "messages": [message]}}
    return {"chat_id": ids.chat, "run_id": ids.run, "request_id": fresh(), "lines": [line]}


GATE = {"gate_id": "c_1"}
CLAIM = GATE | {"holder": "tab"}
GRANT = {"grant_id": "grant_1"}
HOOK = {"url": "https://hooks.example/"}


def names_ids(kind: Descriptor, depth: int = 3) -> bool:
    """Return whether a message, or one nested in it, has the id of a chat or a run."""
    return any(
        rules_of(field).uuid
        or (depth > 0 and field.message_type is not None and names_ids(field.message_type, depth - 1))
        for field in kind.fields
    )


_OTHERS: dict[str, dict[str, Any] | Callable[[Ids], dict[str, Any]]] = {
    "AgentService.Query": {"message": "hi", "agent_key": "plain"},
    "AgentService.Submit": {"tool_id": "t_1", "payload": "{}"},
    "AgentService.Cancel": {},
    "AgentService.Steer": {"message": "go on"},
    "AgentService.Compact": {},
    "GateService.GetGate": GATE,
    "GateService.AnswerGate": GATE | {"payload": "{}"},
    "GateService.ClaimGate": CLAIM,
    "GateService.ReleaseGate": CLAIM,
    "GateService.DelegateGate": GATE | {"to": ["user:eve"]},
    "GateService.AskBack": GATE | {"note": "why?"},
    "GateService.RevokeGrant": GRANT,
    "MemoryService.RevokeGrant": GRANT,
    "MemoryService.GetGate": GATE,
    "MemoryService.GetChat": {"include_lines": True},
    "MemoryService.ShareChat": {"shared_with": ["tenant"]},
    "MemoryService.UpdateChat": {"title": "Mine"},
    "MemoryService.ForkChat": {},
    "MemoryService.Append": _describe_step,
    "MemoryService.BeginRun": lambda ids: {
        "append": _describe_step(ids),
        "context": {"chat_id": ids.chat, "run_id": ids.run},
    },
    "MemoryService.ReadResult": {"tool_call_id": "c_1"},
    "MemoryService.Compact": {},
    "MemoryService.ListCheckpoints": {"run_id": None},
    "MemoryService.PinMessage": {"n": 1},
    "MemoryService.EditSummary": {"n": 1, "text": "t"},
    "MemoryService.Revert": {},
    "MemoryService.UpdateState": {"state": "{}"},
    "MemoryService.AcquireLease": {"owner": "me", "ttl_ms": 1000},
    "MemoryService.RenewLease": {"generation": 0, "ttl_ms": 1000},
    "MemoryService.RenewLeases": lambda ids: {"leases": [{"run_id": ids.run}], "ttl_ms": 1000},
    "MemoryService.ReleaseLease": {},
    "MemoryService.PutBlob": {"mime_type": "image/png", "data": b"png"},
    "ToolService.Execute": {"tool_call_id": "c1", "tool_name": "city_datetime", "arguments": '{"city":"Paris"}'},
    "ToolService.CheckEffect": {"effect_key": "k", "tool_name": "write_file"},
    "ToolService.LinkSkill": {"skill_id": "letter"},
    "ToolService.UploadFile": lambda ids: {"start": {"chat_id": ids.chat, "name": "notes.txt", "size_bytes": 5}},
    "ToolService.ReadFile": {"path": "uploads/notes.txt"},
    "MemoryService.Remember": lambda ids: {"text": "likes tea", "source": {"chat_id": ids.chat, "run_id": ids.run}},
    "MemoryService.UpdateFact": {"text": "drinks tea"},
    "MemoryService.DeleteFact": {},
    "MemoryService.ReserveSpend": {
        "budgets": [{"budget_id": "b", "period": "day", "tokens_max": 1}],
        "least": {},
        "wanted": {},
    },
    "OperatorService.GetRun": {"include_events": True},
    "OperatorService.CancelRuns": {},
    "ScheduleService.CreateSchedule": {"agent_key": "plain", "message": "hi", "cron": "0 0 1 1 *", "schedule_id": None},
    "ScheduleService.UpdateSchedule": {"name": "n", "chat_id": None},
    "ScheduleService.TriggerSchedule": {},
    "ScheduleService.RotateScheduleSecret": {},
    "ScheduleService.RecordFiring": {"firing": {"due_at": 1, "outcome": "missed"}},
    "ScheduleService.DeleteSchedule": {},
    "KeyService.CreateKey": lambda ids: {"key_id": ids.key or ids.chat, "name": "of the test", "user": "cat"},
    "KeyService.ConfirmKey": {},
    "KeyService.UpdateKey": {"roles": ["staff"]},
    "KeyService.RevokeKey": {},
    "WebhookService.CreateWebhook": lambda ids: HOOK | {"webhook_id": ids.webhook or ids.chat},
    "WebhookService.UpdateWebhook": {"name": "n"},
    "WebhookService.RotateSecret": {},
    "WebhookService.PingWebhook": {},
    "WebhookService.ReplayDeliveries": {},
    "WebhookService.PutRunWebhook": HOOK | {"config_id": "c"},
    "WebhookService.DeleteRunWebhook": {"config_id": "c"},
    "WebhookService.DeleteWebhook": {},
    "MemoryService.DeleteChat": {},
}
"""What a request has besides the ids that it has fields for, in the order in which an owner may do all of it."""

FIELDS: dict[str, dict[str, Any] | Callable[[Ids], dict[str, Any]]] = {
    name: {} for name, rpc in RPCS.items() if name not in _OTHERS and names_ids(rpc.input_type)
} | _OTHERS
"""The same, of every RPC that names something of somebody's: those that only need ids come first."""


def make_request(name: str, ids: Ids) -> list[Message]:
    """Return the messages of a request; one that names no user's resource is empty."""
    kind = RPCS[name].input_type
    given = FIELDS.get(name)
    if given is None:
        return [GetMessageClass(kind)()]
    known = {field: value for field, value in ids.fields.items() if field in kind.fields_by_name}
    request = GetMessageClass(kind)(**(known | (given(ids) if callable(given) else given)))
    return [request, GetMessageClass(kind)(data=b"hello")] if name == "ToolService.UploadFile" else [request]
