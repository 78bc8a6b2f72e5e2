"""What became of the calls that change something: one small file for each effect key, on disk before the call runs.

data_dir/effects/<chatId>/<SHA-256 of the key>.json is `started` before the tool runs and `ended`, with the outcome,
before the outcome is told. A process that is killed in between leaves `started`: nobody knows whether the effect took
place, and a tool that may act once only is not run again. The files lie outside the workspaces, so that no command can
change them, and may be shared by replicas: creating one is atomic, and the first wins.
These functions block; call them in a thread. They raise OSError only through `disk_errors`.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec

from headrace.errors import InvalidRequest, Overloaded
from headrace.v1 import tools_pb2
from services.runtime.disk import disk_errors, sync_folder
from services.runtime.rpc.field_rules import is_uuid

WHAT = "the record of a call"
"""In the error of a disk that refuses it: the tool has not run, or its outcome was not told."""

Sync = Callable[[int], None]
"""Makes what was written to a descriptor durable."""


class Outcome(msgspec.Struct, frozen=True):
    """How the tool has ended; its arguments are the caller's own and not kept."""

    ok: bool
    result: str
    """At most RESULT_CHARS_MAX characters, as the model got it."""


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """One file."""

    key: str
    tool: str
    state: Literal["started", "ended"] = "started"
    outcome: Outcome | None = None
    """None until it has ended."""


_READ = msgspec.json.Decoder(Record)


class Effects:
    """The records of all chats below one folder. Calls of different keys may run in parallel."""

    def __init__(self, root: Path, sync: Sync = os.fsync) -> None:
        self.root = root
        self._sync = sync
        self._running: set[str] = set()

    @contextmanager
    def running(self, key: str) -> Generator[None]:
        """The one execution of `key` in this process. Raises Overloaded when there is one already."""
        if key in self._running:
            raise Overloaded("this very call is running already; ask again when it has ended")
        self._running.add(key)
        try:
            yield
        finally:
            self._running.discard(key)

    def find(self, chat_id: str, key: str) -> Record | None:
        """The record of `key`; None when no call with it was ever started."""
        with disk_errors(WHAT, chat_id):
            try:
                data = self._path(chat_id, key).read_bytes()
            except FileNotFoundError:
                return None
        return _READ.decode(data)

    def start(self, chat_id: str, key: str, tool: str) -> Record | None:
        """Record that the call is about to run; on disk when this returns.

        Returns the record that was there already, and stays, if any.
        """
        path = self._path(chat_id, key)
        with disk_errors(WHAT, chat_id):
            self._make_folder(path.parent)
            with self._written(path.parent, Record(key, tool)) as temporary:
                try:
                    os.link(temporary, path)  # fails where a rename would replace what another call has recorded
                except FileExistsError:
                    return self.find(chat_id, key) or Record(key, tool)
            try:
                sync_folder(path.parent, self._sync)
            except OSError:
                path.unlink()  # the tool will not run
                raise
        return None

    def end(self, chat_id: str, record: Record, outcome: Outcome) -> None:
        """Record the outcome; on disk when this returns."""
        path = self._path(chat_id, record.key)
        ended = msgspec.structs.replace(record, state="ended", outcome=outcome)
        with disk_errors(WHAT, chat_id):
            with self._written(path.parent, ended) as temporary:
                os.replace(temporary, path)
            sync_folder(path.parent, self._sync)

    def forget(self, chat_id: str, key: str) -> None:
        """Take a start back: the tool has done nothing."""
        path = self._path(chat_id, key)
        with disk_errors(WHAT, chat_id):
            path.unlink(missing_ok=True)
            sync_folder(path.parent, self._sync)

    @contextmanager
    def _written(self, folder: Path, record: Record) -> Generator[Path]:
        """A durable file of the record's content, which is gone after the block unless it has another name by then."""
        temporary = folder / f"{secrets.token_hex(8)}.tmp"
        try:
            # Results are the user's: for nobody else on the machine.
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
                file.write(msgspec.json.encode(record))
                file.flush()
                self._sync(file.fileno())
            yield temporary
        finally:
            temporary.unlink(missing_ok=True)

    def _make_folder(self, folder: Path) -> None:
        """The chat's folder, its name as durable as what it will hold."""
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            sync_folder(self.root, self._sync)

    def _path(self, chat_id: str, key: str) -> Path:
        if not is_uuid(chat_id):
            raise InvalidRequest.of("chatId", "must be a UUID in lower case")
        return self.root / chat_id / f"{hashlib.sha256(key.encode()).hexdigest()}.json"


def message(outcome: Outcome) -> tools_pb2.ToolOutcome:
    return tools_pb2.ToolOutcome(ok=outcome.ok, result=outcome.result)
