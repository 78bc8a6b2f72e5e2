"""The result of one run of a case, and the journal of results that keeps a second attempt from repeating runs."""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from headrace.cli.evaluation.suite import Case, Suite, Variant
from headrace.run_states import State


class Call(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    arguments: Any = None
    result: str = ""
    ok: bool = True


class Verdict(msgspec.Struct, frozen=True, rename="camel"):
    """Outcome of one check."""

    check: str
    ok: bool
    detail: str = ""
    score: int | None = None
    """Score of a judge."""
    prompt: str = ""
    """Prompt of a judge."""


class Result(msgspec.Struct, rename="camel"):
    key: str
    """Hash of case, variant, checks and repetition; changing a text in the suite changes the key."""
    case: str
    variant: str
    repetition: int
    run_id: str = ""
    chat_id: str = ""
    state: str = ""
    """completed, cancelled or failed; empty if no run started."""
    answer: str = ""
    error: str = ""
    calls: list[Call] = []
    steps: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    """None if no price is known."""
    first_delta_ms: float | None = None
    latency_ms: float = 0.0
    verdicts: list[Verdict] = []

    @property
    def passed(self) -> bool:
        return self.state == State.COMPLETED and all(verdict.ok for verdict in self.verdicts)


class Planned(msgspec.Struct, frozen=True):
    """A run to be executed."""

    case: Case
    variant: Variant
    repetition: int
    key: str


def plan_runs(suite: Suite) -> list[Planned]:
    """Return the runs, all variants of a case next to each other, so that partial results stay comparable."""
    return [
        Planned(case, variant, repetition, make_key(suite, case, variant, repetition))
        for repetition in range(1, suite.repetitions + 1)
        for case in suite.cases
        for variant in suite.variants
    ]


def make_key(suite: Suite, case: Case, variant: Variant, repetition: int) -> str:
    asked = msgspec.to_builtins([case, variant, suite.checks, suite.judge])
    return hashlib.sha256(json.dumps([asked, repetition], sort_keys=True).encode()).hexdigest()[:32]


class _Head(msgspec.Struct, frozen=True):
    evaluation: str
    """Random id from which chat and request ids derive, so that repeating a request attaches to its run."""


class Journal:
    """File of results, opened by `with`; a truncated last line is dropped.

    Raises:
        msgspec.MsgspecError: The file is not a journal.
    """

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
        """Append a result; return when it is on disk."""
        self.results[result.key] = result
        self._write(result)

    def _write(self, line: msgspec.Struct) -> None:
        self._file.write(msgspec.json.encode(line) + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
