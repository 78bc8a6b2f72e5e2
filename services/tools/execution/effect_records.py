"""Stores a small file for each effect key, on disk before a call that changes something runs.

data_dir/effects/<chatId>/<SHA-256 of the key>.json holds `started` before the tool runs and `ended`, with the outcome,
before that is sent; in between, `pause` holds the questions of a call that asks a person. Replicas may share the files:
the first creator wins. These functions block.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec

from headrace.errors import InvalidRequest, Overloaded
from headrace.v1 import common_pb2, tools_pb2
from services.runtime.files.disk import disk_errors, sync_folder
from services.runtime.rpc.field_rules import is_uuid

WHAT = "the record of a call"

WAITS = "the call waits for a person's answer"

Sync = Callable[[int], None]


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    ok: bool
    result: str
    """Text of the result, at most RESULT_CHARS_MAX characters."""

    shown: list[str] = []
    """Paths of the media that the model sees."""


class Ask(msgspec.Struct, frozen=True, omit_defaults=True):
    """An InputNeed."""

    name: str
    server: str
    message: str
    schema: str = ""
    url: str = ""
    authorizes: bool = False


class Pause(msgspec.Struct, frozen=True):
    """A call that waits for people's answers."""

    asks: list[Ask]
    resume_state: str = msgspec.field(name="course")
    """Stored under an older name."""


class EffectRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    key: str
    tool: str
    state: Literal["started", "ended"] = "started"
    outcome: Outcome | None = None
    pause: Pause | None = None
    """Set while it waits for people."""


_READ = msgspec.json.Decoder(EffectRecord)


class EffectRecords:
    def __init__(self, root: Path, sync: Sync = os.fsync) -> None:
        self.root = root
        self._sync = sync
        self._running: set[str] = set()

    @contextmanager
    def lock_key(self, key: str) -> Generator[None]:
        """Lock `key` for the block. Raises Overloaded if a call with it is running in this process."""
        if key in self._running:
            raise Overloaded("this very call is running already; ask again when it has ended")
        self._running.add(key)
        try:
            yield
        finally:
            self._running.discard(key)

    def is_running(self, key: str) -> bool:
        return key in self._running

    def find_record(self, chat_id: str, key: str) -> EffectRecord | None:
        with disk_errors(WHAT, chat_id):
            try:
                data = self._find_path(chat_id, key).read_bytes()
            except FileNotFoundError:
                return None
        return _READ.decode(data)

    def record_start(self, chat_id: str, key: str, tool: str) -> EffectRecord | None:
        """Write the record to disk; if one already exists, return it unchanged."""
        path = self._find_path(chat_id, key)
        with disk_errors(WHAT, chat_id):
            self._make_folder(path.parent)
            with self._write_temporary(path.parent, EffectRecord(key, tool)) as temporary:
                try:
                    os.link(temporary, path)  # fails where a rename would replace what another call has recorded
                except FileExistsError:
                    return self.find_record(chat_id, key) or EffectRecord(key, tool)
            try:
                sync_folder(path.parent, self._sync)
            except OSError:
                path.unlink()  # the tool will not run
                raise
        return None

    def record_end(self, chat_id: str, record: EffectRecord, outcome: Outcome) -> None:
        """Write the outcome; on disk on return."""
        self._replace_record(chat_id, msgspec.structs.replace(record, state="ended", outcome=outcome))

    def record_pause(self, chat_id: str, record: EffectRecord, pause: Pause | None) -> None:
        """Write the call's questions, or None when it continues; on disk on return."""
        with disk_errors(WHAT, chat_id):
            self._make_folder(self._find_path(chat_id, record.key).parent)  # a call may wait before it starts
        self._replace_record(chat_id, msgspec.structs.replace(record, pause=pause))

    def _make_folder(self, folder: Path) -> None:
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            sync_folder(self.root, self._sync)

    def _replace_record(self, chat_id: str, record: EffectRecord) -> None:
        path = self._find_path(chat_id, record.key)
        with disk_errors(WHAT, chat_id):
            with self._write_temporary(path.parent, record) as temporary:
                os.replace(temporary, path)
            sync_folder(path.parent, self._sync)

    def delete_record(self, chat_id: str, key: str) -> None:
        path = self._find_path(chat_id, key)
        with disk_errors(WHAT, chat_id):
            path.unlink(missing_ok=True)
            sync_folder(path.parent, self._sync)

    @contextmanager
    def _write_temporary(self, folder: Path, record: EffectRecord) -> Generator[Path]:
        temporary = folder / f"{secrets.token_hex(8)}.tmp"
        try:
            # Results belong to the user, so no other user of the machine may read them.
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
                file.write(msgspec.json.encode(record))
                file.flush()
                self._sync(file.fileno())
            yield temporary
        finally:
            temporary.unlink(missing_ok=True)

    def _find_path(self, chat_id: str, key: str) -> Path:
        if not is_uuid(chat_id):
            raise InvalidRequest.of("chatId", "must be a UUID in lower case")
        return self.root / chat_id / f"{hashlib.sha256(key.encode()).hexdigest()}.json"


def to_message(outcome: Outcome) -> tools_pb2.ToolOutcome:
    return tools_pb2.ToolOutcome(ok=outcome.ok, result=outcome.result, shown_paths=outcome.shown)


def to_pause(asks: Iterable[common_pb2.InputNeed], resume_state: str) -> Pause:
    return Pause(
        [Ask(ask.name, ask.server, ask.message, ask.schema, ask.url, ask.authorizes) for ask in asks], resume_state
    )


def to_asking(pause: Pause) -> tools_pb2.ToolDelta:
    """Return the result of a waiting call: its questions."""
    asks = [
        common_pb2.InputNeed(
            name=ask.name,
            server=ask.server,
            message=ask.message,
            schema=ask.schema or None,
            url=ask.url or None,
            authorizes=ask.authorizes,
        )
        for ask in pause.asks
    ]
    return tools_pb2.ToolDelta(result=tools_pb2.ToolOutcome(ok=False, result=WAITS, asks=asks))
