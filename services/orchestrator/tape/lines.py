"""A tape as the lines of a cassette, without secrets."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from headrace.cassette.methods import dump, parse_answer, parse_request
from headrace.cassette.pool import PoolWriter
from headrace.v1 import agent_pb2
from services.orchestrator.tape.tape import Entry, Failed
from services.orchestrator.tape.taped_stub import WITHOUT_REQUEST
from services.runtime.auth.identity import Identity
from services.runtime.formats import json_form

Mask = Callable[[str], str]


def write_tape(entries: Iterable[Entry], began_at: int, mask: Mask) -> Iterator[str]:
    """Write what was noted; times count from `began_at`, in milliseconds."""
    pool = PoolWriter()
    for entry in entries:
        at = max(0, entry.at - began_at)
        if entry.kind == "event":
            event = json_form.event(agent_pb2.AgentDelta.FromString(entry.data))
            if event is not None:
                yield mask(f'{{"at":{at},"event":{event.json.decode()}}}')
            continue
        values, line = pool.take_out({"at": at, **_describe_entry(entry)})
        for number, value in values:
            yield write_line({"value": number, "json": value}, mask)
        yield write_line(line, mask)


def write_line(given: dict[str, Any], mask: Mask) -> str:
    return json.dumps(mask_texts(given, mask), ensure_ascii=False, separators=(",", ":"))


def mask_texts(given: Any, mask: Mask) -> Any:
    """Return the JSON with each of its texts masked."""
    if isinstance(given, str):
        return mask(given)
    if isinstance(given, dict):
        return {name: mask_texts(value, mask) for name, value in given.items()}
    if isinstance(given, list):
        return [mask_texts(item, mask) for item in given]
    return given


def _describe_entry(entry: Entry) -> dict[str, Any]:
    match entry.kind:
        case "call" if entry.method in WITHOUT_REQUEST:
            return {"call": entry.number, "method": entry.method}
        case "call":
            request = dump(parse_request(entry.method, entry.data))
            return {"call": entry.number, "method": entry.method, "request": request}
        case "answer":
            return {"answer": entry.number, "message": dump(parse_answer(entry.method, entry.data))}
        case "received":
            request = dump(parse_request(entry.method, entry.data))
            return {"received": entry.method, "request": request, **describe_identity(entry.by)}
        case _:
            return {"end": entry.number, **_describe_failure(entry.failed)}


def describe_identity(by: Identity | None) -> dict[str, Any]:
    if by is None:
        return {}
    named = {"user": by.user, "credential": by.credential, "roles": sorted(by.roles), "scopes": sorted(by.scopes)}
    return {name: value for name, value in named.items() if value}


def _describe_failure(failed: Failed | None) -> dict[str, Any]:
    if failed is None:
        return {}
    if failed.status:
        return {"status": failed.status}
    if failed.error is None:
        return {"left": True}
    error = failed.error
    told: dict[str, Any] = {"reason": error.reason, "message": error.message}
    if error.metadata:
        told["metadata"] = error.metadata
    if error.retry_after_s is not None:
        told["retryAfterMs"] = round(error.retry_after_s * 1000)
    return {"error": told}
