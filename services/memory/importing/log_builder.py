"""The log that an import makes: numbered, with an end for every run, and an event number for everything said."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from headrace.errors import InvalidRequest
from headrace.v1 import llm_pb2
from services.memory.importing.messages import Json, raw
from services.memory.log.blobs import Blob
from services.memory.log.images import apart
from services.memory.log.lines import (
    CompactBoundary,
    CompactMetadata,
    CompactSummary,
    ImagePart,
    ImageUrl,
    Known,
    Part,
    Query,
    Range,
    RetainedFrom,
    Run,
    Step,
    StoredMessage,
    TextPart,
    encode,
)
from services.memory.log.messages import text_of
from services.runtime.rpc.field_rules import is_uuid

_NAMES = uuid.UUID("b4f2c1de-52a6-4f83-9c5e-0d4f0a7f6f10")

STAGES = frozenset({"oneshot", "react", "plan", "execute", "summary", "verify", "compact"})


def uuid_of(name: str) -> str:
    """`name` if it is a UUID, else the one that always stands for it: chats and runs have no other ids."""
    return name if is_uuid(name) else str(uuid.uuid5(_NAMES, name))


@dataclass(slots=True)
class _Going:
    """A run that has begun."""

    last_seq: int
    question: str
    steps: int = 0
    is_ended: bool = False


@dataclass(slots=True)
class Writing:
    """Takes a chat in the order of its log."""

    chat_id: str
    data: list[bytes] = field(default_factory=list[bytes])
    blobs: list[Blob] = field(default_factory=list[Blob])
    """Images that the messages held."""
    run_id: str = ""
    """The last run that was written to."""
    _runs: dict[str, _Going] = field(default_factory=dict[str, _Going])
    _ts: int = 0

    def query(self, run_id: str, query: Json, ts: int, uuid: str = "", agent_hash: str = "") -> None:
        """A run begins; a run that has begun is not begun twice."""
        if run_id in self._runs:
            return
        self._runs[run_id] = _Going(2 if self.data else 3, str(query.get("message") or ""))
        self.run_id = run_id
        asked = {"message": "", **query, "chatId": self.chat_id}
        line = Query(**self._stamp(run_id, ts, uuid), query=raw(asked), agent_hash=agent_hash)
        self._write(line)

    def step(self, run_id: str, messages: Sequence[StoredMessage], ts: int, **given: Any) -> None:
        """Messages of a run; what has no event number yet gets one, so that history shows it."""
        run = self._begun(run_id, ts)
        if not run.steps and messages and _text(messages[0]) == run.question:
            messages = messages[1:]  # the query says it already
        run.steps += 1
        numbered = [self._numbered(run, self._without_data(message)) for message in messages]
        uuid, stage, seq = given.pop("uuid", ""), given.pop("stage", "react"), given.pop("seq", run.steps)
        stamp = self._stamp(run_id, ts, uuid)
        self._write(Step(**stamp, stage=stage if stage in STAGES else "react", seq=seq, messages=numbered, **given))

    def end(self, run_id: str, ts: int, state: str = "completed", **given: Any) -> None:
        """A run has ended; it does so once."""
        run = self._begun(run_id, ts)
        if run.is_ended:
            return
        run.is_ended = True
        run.last_seq += 1
        uuid = given.pop("uuid", "")
        self._write(
            Run(**self._stamp(run_id, ts, uuid), state=state, events=Range(run.last_seq, run.last_seq), **given)
        )

    def compacted(self, summary: str, ts: int, trigger: str, tokens: int) -> None:
        """A summary of everything before stands for it from here on."""
        if not self.run_id:
            return
        boundary = CompactBoundary(
            **self._stamp(self.run_id, ts, ""),
            lines=2,
            type="system",
            subtype="compact_boundary",
            role="system",
            content="Conversation compacted",
            compact_metadata=CompactMetadata(trigger, tokens, 0, [], "summary"),
        )
        self._write(boundary)
        stamp = self._stamp(self.run_id, ts, "")
        self._write(
            CompactSummary(
                **stamp,
                parent_uuid=boundary.uuid,
                role="user",
                is_compact_summary=True,
                content=summary,
                retained_from=RetainedFrom(stamp["n"] + 1, 0),
            )
        )

    def other(self, line: Json, run_id: str, ts: int) -> None:
        """A line of a kind that is kept as it is."""
        if run_id:
            self._begun(run_id, ts)
            self._runs[run_id].last_seq = max(self._runs[run_id].last_seq, _seq(line))
        stamp = self._stamp(run_id, ts, str(line.get("uuid") or ""))
        members = {
            **line, "_n": stamp["n"], "uuid": stamp["uuid"], "chatId": self.chat_id, "runId": run_id,
            "updatedAt": stamp["updated_at"], "_tenant": "", "_user": "", "_gen": 0,
        }  # fmt: skip
        members.pop("_lines", None)
        self.data.append(json.dumps(members, ensure_ascii=False).encode() + b"\n")

    def log(self) -> bytes:
        """The whole log; runs without an end have ended with it."""
        for run_id in self._runs:
            self.end(run_id, self._ts)
        return b"".join(self.data)

    def has(self, run_id: str) -> bool:
        return run_id in self._runs

    def _begun(self, run_id: str, ts: int) -> _Going:
        if run_id not in self._runs:
            self.query(run_id, {}, ts)
        self.run_id = run_id
        return self._runs[run_id]

    def _without_data(self, message: StoredMessage) -> StoredMessage:
        """The message, its images by reference."""
        content = [self._by_reference(part) for part in message.content or ()]
        return msgspec.structs.replace(message, content=content or None)

    def _by_reference(self, part: Part) -> Part:
        if isinstance(part, TextPart):
            return part
        try:
            blob = apart(llm_pb2.ImagePart(url=part.image_url.url), "image")
        except InvalidRequest:
            return TextPart("[image]")
        if blob is None:
            return part
        self.blobs.append(blob)
        return ImagePart(ImageUrl(blob.reference, part.image_url.detail))

    def _numbered(self, run: _Going, message: StoredMessage) -> StoredMessage:
        if message.events is not None:
            run.last_seq = max(run.last_seq, message.events.last)
            return message
        run.last_seq += 1
        return msgspec.structs.replace(message, events=Range(run.last_seq, run.last_seq))

    def _stamp(self, run_id: str, ts: int, given_uuid: str) -> Json:
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

    def _write(self, line: Known) -> None:
        self.data.append(encode(line))


def _seq(line: Json) -> int:
    event = line.get("event")
    seq = event.get("seq") if isinstance(event, dict) else None
    return seq if isinstance(seq, int) else 0


def _text(message: StoredMessage) -> str | None:
    """What a user message says, if it is one of text alone."""
    parts = message.content or []
    if message.role != "user" or not all(isinstance(part, TextPart) for part in parts):
        return None
    return text_of(parts)
