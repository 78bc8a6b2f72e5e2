"""Facts about users, in a log of their own: one JSON object a line, in the file of one user. Everything here blocks.

They are kept as chats are (append, sync, cut tails set aside), and searched in the index.
"""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from threading import Lock

import msgspec

from services.memory.disk import Disk, disk_errors
from services.memory.entries import Text

USER = ""
"""Whose facts: there is one user until credentials tell them apart."""

_NAMES = uuid.UUID("6f0f7a3e-3a0b-4d0e-9d57-6f3b6d0c7f11")


class Fact(msgspec.Struct, frozen=True, kw_only=True, tag_field="_type", tag="fact", rename="camel"):
    """A line of such a log."""

    n: int = msgspec.field(name="_n")
    uuid: str
    request_id: str
    updated_at: int
    user: str = msgspec.field(name="_user")
    text: str


_FACT = msgspec.json.Decoder(Fact)


class Facts:
    """The facts of all users. May be used from several threads."""

    def __init__(self, folder: Path) -> None:
        self._disk = Disk(folder)
        self._lock = Lock()
        self._known: dict[str, Fact] = {}
        self._end = 0
        self._read()

    def close(self) -> None:
        self._disk.close()

    def add(self, text: str, request_id: str) -> tuple[Fact, bool]:
        """Keep a fact, on disk when this returns; and whether it is new, by its request id."""
        with self._lock:
            if request_id and (known := self._known.get(request_id)):
                return known, False
            fact = Fact(
                n=len(self._known) + 1,
                uuid=str(uuid.uuid4()),
                request_id=request_id,
                updated_at=time.time_ns() // 1_000_000,
                user=USER,
                text=text,
            )
            data = msgspec.json.encode(fact) + b"\n"
            with disk_errors(_file(USER)):
                self._disk.append(_file(USER), self._end, data)
            self._end += len(data)
            self._known[request_id or fact.uuid] = fact
            return fact, True

    def texts(self) -> list[Text]:
        """All facts, to be searched."""
        with self._lock:
            return [text_of(fact) for fact in self._known.values()]

    def _read(self) -> None:
        if _file(USER) not in self._disk.logs():
            return
        data = self._disk.read(_file(USER))
        for text in data.splitlines(keepends=True):
            try:
                fact = _FACT.decode(text)
            except msgspec.DecodeError:
                break
            if not text.endswith(b"\n"):
                break
            self._known[fact.request_id or fact.uuid] = fact
            self._end += len(text)
        if self._end < len(data):
            self._disk.set_aside(_file(USER), self._end, data[self._end :])


def text_of(fact: Fact) -> Text:
    return Text(fact.n, "", "fact", fact.text)


def _file(user: str) -> str:
    """The name of a user's file: nothing but a UUID becomes a path."""
    return str(uuid.uuid5(_NAMES, user))
