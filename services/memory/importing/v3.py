"""Chat Memory V3 and V3.1: query and step lines, with older names.

V3 logs in the folder of chats, under a log's name, are converted in place: our own lines always have a number, V3 lines
have none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.v1 import agent_pb2, common_pb2
from services.memory.importing import v3
from services.memory.importing.log_builder import LogBuilder, make_uuid
from services.memory.importing.messages import (
    Json,
    parse_json,
    read_message,
    to_count,
    to_dict,
    to_list,
    to_milliseconds,
    to_raw,
    to_text,
)
from services.memory.log import recovery
from services.memory.log.media import Blob
from services.memory.log.raw_json import pick_loadable
from services.runtime.rpc.field_rules import is_uuid


def convert_lines(writing: LogBuilder, lines: list[Json]) -> None:
    events = (to_dict(line.get("event")) for line in lines if line.get("_type") == "event")
    shows_plans = not any(to_text(event.get("type")).startswith("plan.") for event in events)
    plans: dict[str, Any] = {}
    for line in lines:
        ts = to_milliseconds(line.get("updatedAt"))
        name = to_text(line.get("runId"))
        run_id = name or writing.run_id or make_uuid(writing.chat_id)
        if name and not is_uuid(name):
            run_id = make_uuid(f"{writing.chat_id} {name}")  # two chats may have the same name
        match line.get("_type"):
            case "query":
                query = to_dict(line.get("query"))
                writing.add_query(run_id, query, ts, to_text(line.get("uuid")), to_text(line.get("_agentHash")))
            case "step":
                plan = _add_step(writing, line, run_id, ts)
                if shows_plans and plan is not None and plan != plans.get(run_id):
                    kind = "plan.update" if run_id in plans else "plan.create"
                    event = {"type": kind, "planId": plan["planId"], "chatId": writing.chat_id, "plan": plan["tasks"]}
                    writing.add_event(run_id, event, ts)
                    plans[run_id] = plan
            case "run":
                _end_run(writing, line, run_id, ts)
            case _:
                writing.add_other(line, run_id if line.get("runId") else "", ts)


def _add_step(writing: LogBuilder, line: Json, run_id: str, ts: int) -> Json | None:
    """Add a step; return its plan, if any."""
    messages = [to_dict(message) for message in to_list(line.get("messages"))]
    systems = [to_text(message.get("content")) for message in messages if message.get("role") == "system"]
    system = line.get("system", systems[0] if systems else None)
    plan = line.get("plan", line.get("planSnapshot"))
    if isinstance(plan, dict):
        tasks = map(to_dict, to_list(plan.get("tasks", plan.get("plan"))))
        loadable = [pick_loadable(task, agent_pb2.Task) for task in tasks]
        plan = {"planId": to_text(plan.get("planId")), "tasks": loadable}
    else:
        plan = None
    given: dict[str, Any] = {
        "uuid": to_text(line.get("uuid")),
        "stage": to_text(line.get("_stage")),
        "task_id": _read_name(line.get("taskId")),
        "context_id": _read_name(line.get("contextId")),
        "system": to_text(to_dict(system).get("content")) if isinstance(system, dict) else _read_name(system),
        "plan": to_raw(plan),
    }
    if (seq := to_count(line.get("_seq"))) is not None:
        given["seq"] = seq
    writing.add_step(run_id, [piece for message in messages for piece in read_message(message, ts)], ts, **given)
    return plan


def _end_run(writing: LogBuilder, line: Json, run_id: str, ts: int) -> None:
    state = line.get("state")
    writing.end_run(
        run_id,
        ts,
        state if state in ("completed", "cancelled", "failed") else "completed",
        uuid=to_text(line.get("uuid")),
        finish_reason=_read_name(line.get("finishReason")),
        error=to_raw(pick_loadable(to_dict(line.get("error")), common_pb2.Failure) or None),
        usage=to_raw(pick_loadable(to_dict(line.get("usage")), common_pb2.Usage) or None),
    )


def _read_name(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


@dataclass(frozen=True, slots=True)
class OlderLog:
    log: bytes
    """Its lines in our form."""

    blobs: list[Blob]
    lines: int
    """Number of lines that were read."""

    unreadable: tuple[int, ...]
    """Numbers of the lines that are not JSON, except a last line that was cut off while being written."""


def convert_older_log(chat_id: str, data: bytes) -> OlderLog | None:
    """Return the chat in a V3 log; None if `data` is not one."""
    entries: list[Json] = []
    unreadable: list[int] = []
    *texts, rest = data.split(b"\n")
    for number, text in enumerate(texts, 1):
        if text.strip() and not _add_entry(entries, text):
            unreadable.append(number)
        if unreadable and not entries:
            return None
    if rest.strip():
        _add_entry(entries, rest)
    if not entries or any("_n" in entry or entry.get("chatId", chat_id) != chat_id for entry in entries):
        return None
    writing = LogBuilder(chat_id)
    v3.convert_lines(writing, entries)
    log = writing.build_log()
    reading = recovery.read_log(log, chat_id)
    if reading.is_damaged or not reading.lines or reading.whole_bytes != len(log):
        return None
    return OlderLog(log, writing.blobs, len(entries), tuple(unreadable))


def _add_entry(entries: list[Json], text: bytes) -> bool:
    try:
        entry = parse_json(text)
    except (ValueError, RecursionError):
        return False
    if not isinstance(entry, dict) or not isinstance(entry.get("_type"), str):
        return False
    entries.append(entry)
    return True
