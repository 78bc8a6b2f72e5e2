"""The journal of an evaluation: each result as a line, once it is there. Begun again, nothing is asked twice."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from types import TracebackType

import msgspec

from headrace.cli.evaluation.result import Result


class _Head(msgspec.Struct, frozen=True):
    evaluation: str
    """An id of its own, from which those of its chats and requests follow: asked again, a run is attached to."""


class Journal:
    """Opened by `with`; a line that a break has cut is dropped. Raises msgspec.MsgspecError for another file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.results: dict[str, Result] = {}
        self.id = ""

    def __enter__(self) -> Journal:
        lines = self._path.read_bytes().splitlines(keepends=True) if self._path.exists() else []
        whole = [line for line in lines if line.endswith(b"\n")]
        if whole:
            self.id = msgspec.json.decode(whole[0], type=_Head).evaluation
        for line in whole[1:]:
            result = msgspec.json.decode(line, type=Result)
            self.results[result.key] = result
        self._file = self._path.open("ab")
        self._file.truncate(sum(map(len, whole)))
        if not self.id:
            self.id = str(uuid.uuid4())
            self._write(_Head(self.id))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, result: Result) -> None:
        """Return when the line is on disk."""
        self.results[result.key] = result
        self._write(result)

    def _write(self, line: msgspec.Struct) -> None:
        self._file.write(msgspec.json.encode(line) + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
