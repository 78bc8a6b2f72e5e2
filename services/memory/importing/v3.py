"""Chat Memory V3 and V3.1: query and step lines, with the names that older versions had."""

from __future__ import annotations

from typing import Any

from services.memory.importing.log_builder import Writing, uuid_of
from services.memory.importing.messages import Json, dict_of, list_of, pieces, raw, text_in
from services.memory.importing.timestamps import milliseconds
from services.memory.log.lines import ABSENT


def take_in(writing: Writing, lines: list[Json]) -> None:
    """Write a chat's lines again as they are written now."""
    for line in lines:
        ts = milliseconds(line.get("updatedAt"))
        run_id = uuid_of(name) if (name := text_in(line.get("runId"))) else writing.run_id or uuid_of(writing.chat_id)
        match line.get("_type"):
            case "query":
                query = dict_of(line.get("query"))
                writing.query(run_id, query, ts, text_in(line.get("uuid")), text_in(line.get("_agentHash")))
            case "step":
                _step(writing, line, run_id, ts)
            case "run":
                _end(writing, line, run_id, ts)
            case _:
                writing.other(line, run_id if line.get("runId") else "", ts)


def _step(writing: Writing, line: Json, run_id: str, ts: int) -> None:
    messages = [dict_of(message) for message in list_of(line.get("messages"))]
    systems = [text_in(message.get("content")) for message in messages if message.get("role") == "system"]
    system = line.get("system", systems[0] if systems else None)
    given: dict[str, Any] = {
        "uuid": text_in(line.get("uuid")),
        "stage": text_in(line.get("_stage")),
        "task_id": _name(line.get("taskId")),
        "context_id": _name(line.get("contextId")),
        "system": text_in(dict_of(system).get("content")) if isinstance(system, dict) else _name(system),
        "plan": _plan(line),
    }
    if isinstance(line.get("_seq"), int):
        given["seq"] = line["_seq"]
    writing.step(run_id, [piece for message in messages for piece in pieces(message, ts)], ts, **given)


def _end(writing: Writing, line: Json, run_id: str, ts: int) -> None:
    state = line.get("state")
    writing.end(
        run_id,
        ts,
        state if state in ("completed", "cancelled", "failed") else "completed",
        uuid=text_in(line.get("uuid")),
        finish_reason=_name(line.get("finishReason")),
        error=raw(line.get("error")),
        usage=raw(line.get("usage")),
    )


def _plan(line: Json) -> Any:
    """The plan, whatever it and its tasks are called."""
    plan = line.get("plan", line.get("planSnapshot"))
    if not isinstance(plan, dict):
        return ABSENT
    return raw({"planId": text_in(plan.get("planId")), "tasks": list_of(plan.get("tasks", plan.get("plan")))})


def _name(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
