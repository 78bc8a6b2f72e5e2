"""Stores the recording of an ended run as a blob of its chat: a compressed cassette without secrets."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from typing import Any

import structlog
from google.protobuf.message import Message

from headrace.cassette.lines import VERSION
from headrace.cassette.methods import dump, parse_answer, parse_request
from headrace.cassette.pool import PoolWriter
from headrace.errors import HeadraceError
from headrace.v1 import agent_pb2, memory_pb2
from services.orchestrator.agents.grants import NAME as GRANTS
from services.orchestrator.agents.grants import write_grants
from services.orchestrator.agents.version import AgentVersion
from services.orchestrator.money.budgets import write_budgets
from services.orchestrator.peers.recorder import (
    LISTENER,
    NOT_STORED,
    TOO_LARGE,
    WITHOUT_REQUEST,
    Entry,
    Failed,
    Recorder,
)
from services.orchestrator.run.events.feed import KINDS
from services.orchestrator.run.run import Run
from services.runtime.auth.identity import Identity
from services.runtime.clock import now_ms
from services.runtime.formats import json_form
from services.runtime.rpc.call_ids import list_credentials
from services.runtime.telemetry.masking import mask_secrets

log = structlog.get_logger()


Mask = Callable[[str], str]


def write_cassette(entries: Iterable[Entry], began_at: int, mask: Mask) -> Iterator[str]:
    """Yield the cassette's lines for the entries; times are milliseconds since `began_at`."""
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
    """Return the JSON with every string masked."""
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
    fields: dict[str, Any] = {"reason": error.reason, "message": error.message}
    if error.metadata:
        fields["metadata"] = error.metadata
    if error.retry_after_s is not None:
        fields["retryAfterMs"] = round(error.retry_after_s * 1000)
    return {"error": fields}


MIME_TYPE = "application/vnd.headrace.cassette+gzip"

STORE_TIMEOUT_S = 5.0
"""Timeout for storing the recording, because the run's end waits for it."""

LINE_BYTES_MAX = 3 * 1024 * 1024
"""Maximum size of a line. A page holds at least one line, and clients outside the suite accept messages of 4 MiB."""


async def keep_recording(run: Run, line: memory_pb2.RunLine, end: Message) -> None:
    """Store the run's cassette, if it was recorded; the run's last line gets its name, or the reason why there is
    none."""
    recorder = run.recorder
    if recorder is None:
        return
    fields: Any = {KINDS[type(end)]: end}
    recorder.note_event(agent_pb2.AgentDelta(seq=run.feed.seq + 1, timestamp=now_ms(), **fields).SerializeToString())
    recorder.close()
    if LISTENER.get() is not None:
        return
    if not recorder.problem:
        try:
            line.recording = await _store(run, recorder)
        except ValueError:
            recorder.problem = TOO_LARGE
        except HeadraceError as error:
            log.warning("recording not stored", run_id=run.id, reason=error.reason)
            recorder.problem = NOT_STORED
    if recorder.problem:
        line.recording_problem = recorder.problem


async def _store(run: Run, recorder: Recorder) -> str:
    secrets = (*run.services.secrets, *list_credentials())

    def mask(text: str) -> str:
        return mask_secrets(text, *secrets)

    # Compressing some thousand lines takes a tenth of a second, which other runs should not wait for.
    data = await asyncio.to_thread(_compress, run, recorder, mask)
    request = memory_pb2.PutBlobRequest(chat_id=run.chat_id, mime_type=MIME_TYPE, data=data)
    stored = await run.services.peers.memory.PutBlob(request, timeout=STORE_TIMEOUT_S)
    return stored.blob_id


def _compress(run: Run, recorder: Recorder, mask: Mask) -> bytes:
    written = (*_write_opening(run, mask), *write_cassette(recorder.entries, run.state.created_at, mask))
    lines = [line.encode() for line in written]
    if max(map(len, lines)) > LINE_BYTES_MAX:
        raise ValueError("a line is too long")
    return gzip.compress(b"".join(line + b"\n" for line in lines), compresslevel=6, mtime=0)


def _write_opening(run: Run, mask: Mask) -> Iterator[str]:
    yield write_line(
        {
            "cassette": VERSION,
            "headrace": version("headrace"),
            "runId": run.id,
            "chatId": run.chat_id,
            "agentKey": run.query.agent_key,
            "at": run.state.created_at,
            **describe_identity(run.identity),
        },
        mask,
    )
    known = run.services.agents
    keys = sorted(run.list_agents() & known.keys())
    for key in keys:
        source = {"isTenants": True} if known[key].tenant else {}
        yield write_line({"agent": key, "definition": json.loads(known[key].source), **source}, mask)
    for name in sorted({agent.custom.mode for key in keys if (agent := known[key]).custom is not None}):
        if (code := run.find_mode(name)) is not None:
            yield write_line({"mode": name, "sha256": code.digest, "source": code.source}, mask)
    if run.version is not None:
        yield write_line({"version": run.version.number, **describe_offer(run.version)}, mask)
    files = {"approvals.yaml": run.services.rules.text}
    # Of these what is for the run's user alone: the operator's files name others.
    if run.services.budgets.is_good:
        files["budgets.yaml"] = write_budgets(run.services.budgets.current, run.identity)
    if run.agent.tenant:
        files[GRANTS] = write_grants(run.services.grants.current.select(run.identity.tenant))
    for name, text in files.items():
        if text:
            yield write_line({"file": name, "text": text}, mask)
    yield write_line({"query": dump(run.query)}, mask)


def describe_offer(version: AgentVersion) -> dict[str, Any]:
    """Return the tools and skills of a version, if they were known."""
    offer = {"tools": version.tools, "skills": version.skills}
    return {name: [dump(given) for given in offered] for name, offered in offer.items() if offered is not None}
