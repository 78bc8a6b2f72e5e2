"""Builds an imported log: lines are numbered, every run ends, and every message has an event number."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from headrace.errors import InvalidRequest
from headrace.v1 import agent_pb2
from services.memory.importing.messages import Json, to_count, to_raw
from services.memory.log.lines import (
    CompactBoundary,
    CompactMetadata,
    CompactSummary,
    Event,
    Known,
    Query,
    RetainedFrom,
    Run,
    Step,
    decode_line,
    encode_line,
)
from services.memory.log.media import Blob, describe_media, get_media
from services.memory.log.messages import Part, Range, StoredMessage, TextPart, decode_content, encode_part, join_text
from services.memory.log.raw_json import load_delta, pick_loadable
from services.runtime.rpc.field_rules import is_uuid

_NAMES = uuid.UUID("b4f2c1de-52a6-4f83-9c5e-0d4f0a7f6f10")

STAGES = frozenset({"oneshot", "react", "plan", "execute", "summary", "verify", "compact"})


def make_uuid(name: str) -> str:
    """Return `name` if it is a UUID, else a UUID derived from it."""
    return name if is_uuid(name) else str(uuid.uuid5(_NAMES, name))


@dataclass(slots=True)
class _OpenRun:
    last_seq: int
    question: str
    steps: int = 0
    is_ended: bool = False


@dataclass(slots=True)
class LogBuilder:
    chat_id: str
    data: list[bytes] = field(default_factory=list[bytes])
    blobs: list[Blob] = field(default_factory=list[Blob])
    run_id: str = ""
    _runs: dict[str, _OpenRun] = field(default_factory=dict[str, _OpenRun])
    _ts: int = 0

    def add_query(self, run_id: str, query: Json, ts: int, uuid: str = "", agent_hash: str = "") -> None:
        if run_id in self._runs:
            return
        self._runs[run_id] = _OpenRun(2 if self.data else 3, str(query.get("message") or ""))
        self.run_id = run_id
        asked = {"message": "", **pick_loadable(query, agent_pb2.QueryRequest), "chatId": self.chat_id}
        line = Query(**self._make_stamp(run_id, ts, uuid), query=to_raw(asked), agent_hash=agent_hash)
        self._write_line(line)

    def add_step(self, run_id: str, messages: Sequence[StoredMessage], ts: int, **given: Any) -> None:
        """Add messages of a run, with event numbers where missing, so that history shows them."""
        run = self._get_run(run_id, ts)
        if not run.steps and messages and _get_text(messages[0]) == run.question:
            messages = messages[1:]  # the query says it already
        run.steps += 1
        numbered = [self._complete_message(run, message) for message in messages]
        uuid, stage, seq = given.pop("uuid", ""), given.pop("stage", "react"), given.pop("seq", run.steps)
        stamp = self._make_stamp(run_id, ts, uuid)
        self._write_line(
            Step(**stamp, stage=stage if stage in STAGES else "react", seq=seq, messages=numbered, **given)
        )

    def add_event(self, run_id: str, event: Json, ts: int) -> None:
        run = self._get_run(run_id, ts)
        run.last_seq += 1
        numbered = event | {"seq": run.last_seq, "timestamp": ts}
        self._write_line(Event(**self._make_stamp(run_id, ts, ""), event=to_raw(numbered)))

    def end_run(self, run_id: str, ts: int, state: str = "completed", **given: Any) -> None:
        run = self._get_run(run_id, ts)
        if run.is_ended:
            return
        run.is_ended = True
        run.last_seq += 1
        uuid = given.pop("uuid", "")
        self._write_line(
            Run(**self._make_stamp(run_id, ts, uuid), state=state, events=Range(run.last_seq, run.last_seq), **given)
        )

    def add_compaction(self, summary: str, ts: int, trigger: str, tokens: int) -> None:
        if not self.run_id:
            return
        boundary = CompactBoundary(
            **self._make_stamp(self.run_id, ts, ""),
            lines=2,
            type="system",
            subtype="compact_boundary",
            role="system",
            content="Conversation compacted",
            compact_metadata=CompactMetadata(trigger, tokens, 0, [], "summary"),
        )
        self._write_line(boundary)
        stamp = self._make_stamp(self.run_id, ts, "")
        self._write_line(
            CompactSummary(
                **stamp,
                parent_uuid=boundary.uuid,
                role="user",
                is_compact_summary=True,
                content=summary,
                retained_from=RetainedFrom(stamp["n"] + 1, 0),
            )
        )

    def add_other(self, line: Json, run_id: str, ts: int) -> None:
        if run_id:
            run, event = self._get_run(run_id, ts), line.get("event")
            if isinstance(event, dict):
                # Without a number it would come before the run's own first event.
                seq = to_count(event.get("seq")) or run.last_seq + 1
                line = {**line, "event": {**event, "seq": seq}}
                run.last_seq = max(run.last_seq, seq)
        stamp = self._make_stamp(run_id, ts, str(line.get("uuid") or ""))
        members = {
            **line, "_n": stamp["n"], "uuid": stamp["uuid"], "chatId": self.chat_id, "runId": run_id,
            "updatedAt": stamp["updated_at"], "_tenant": "", "_user": "", "_gen": 0,
        }  # fmt: skip
        members.pop("_lines", None)
        text = json.dumps(members, ensure_ascii=False).encode()
        if not _is_readable(text):
            text = json.dumps(members | {"_type": f"imported_{line.get('_type')}"}, ensure_ascii=False).encode()
        self.data.append(text + b"\n")

    def build_log(self) -> bytes:
        for run_id in self._runs:
            self.end_run(run_id, self._ts)
        return b"".join(self.data)

    def _get_run(self, run_id: str, ts: int) -> _OpenRun:
        if run_id not in self._runs:
            self.add_query(run_id, {}, ts)
        self.run_id = run_id
        return self._runs[run_id]

    def _complete_message(self, run: _OpenRun, message: StoredMessage) -> StoredMessage:
        content = [self._extract_media(part) for part in message.content or ()]
        events = message.events or Range(run.last_seq + 1, run.last_seq + 1)
        run.last_seq = max(run.last_seq, events.last)
        return msgspec.structs.replace(message, content=content or None, events=events)

    def _extract_media(self, part: Part) -> Part:
        (given,) = decode_content([part])
        try:
            return encode_part(given, "content", self.blobs)
        except InvalidRequest:
            media = get_media(given)
            return TextPart(describe_media(media) if media is not None else "")

    def _make_stamp(self, run_id: str, ts: int, given_uuid: str) -> Json:
        self._ts = max(self._ts, ts)
        return {
            "n": len(self.data) + 1,
            "uuid": given_uuid or str(uuid.uuid4()),
            "chat_id": self.chat_id,
            "run_id": run_id,
            "updated_at": self._ts,
            "tenant": "",
            "user": "",
            "generation": 0,
        }

    def _write_line(self, line: Known) -> None:
        self.data.append(encode_line(line))


def _is_readable(text: bytes) -> bool:
    """Return whether views can show the line; they skip unknown kinds."""
    line = decode_line(text)
    try:
        return line is not None and (not isinstance(line, Event) or load_delta(line.event) is not None)
    except (ValueError, TypeError, KeyError, RecursionError):
        return False


def _get_text(message: StoredMessage) -> str | None:
    parts = message.content or []
    if message.role != "user" or not all(isinstance(part, TextPart) for part in parts):
        return None
    return join_text(parts)
