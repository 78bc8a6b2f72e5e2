"""What came of one run of a case."""

from __future__ import annotations

import hashlib
import json
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
    """Of one check."""

    check: str
    ok: bool
    detail: str = ""
    score: int | None = None
    """Of a judge."""
    prompt: str = ""
    """What a judge was asked."""


class Result(msgspec.Struct, rename="camel"):
    key: str
    """Of case, variant and repetition, as they are in the suite: another text is another key."""
    case: str
    variant: str
    repetition: int
    run_id: str = ""
    chat_id: str = ""
    state: str = ""
    """completed, cancelled or failed; empty: no run began."""
    answer: str = ""
    error: str = ""
    calls: list[Call] = []
    steps: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    """None where no price is known."""
    first_delta_ms: float | None = None
    latency_ms: float = 0.0
    verdicts: list[Verdict] = []

    @property
    def passed(self) -> bool:
        return self.state == State.COMPLETED and all(verdict.ok for verdict in self.verdicts)


class Planned(msgspec.Struct, frozen=True):
    """A run that is to be made."""

    case: Case
    variant: Variant
    repetition: int
    key: str


def plan_runs(suite: Suite) -> list[Planned]:
    """Return the runs, all variants of a case beside each other, so that a break leaves them comparable."""
    return [
        Planned(case, variant, repetition, make_key(suite, case, variant, repetition))
        for repetition in range(1, suite.repetitions + 1)
        for case in suite.cases
        for variant in suite.variants
    ]


def make_key(suite: Suite, case: Case, variant: Variant, repetition: int) -> str:
    asked = msgspec.to_builtins([case, variant, suite.checks, suite.judge])
    return hashlib.sha256(json.dumps([asked, repetition], sort_keys=True).encode()).hexdigest()[:32]
