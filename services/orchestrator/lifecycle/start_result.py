"""The results of starting a query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from headrace.errors import Overloaded
from services.orchestrator.run.run import Run


@dataclass(frozen=True, slots=True)
class RepeatedQuery:
    run_id: str


@dataclass(frozen=True, slots=True)
class OwnedElsewhere:
    """Another process owns the chat's runs; nothing was begun."""

    run_id: str


@dataclass(frozen=True, slots=True)
class ParkedStream:
    """A reader whose run was parked; it goes on behind `last_seq` where the run does."""

    run_id: str
    last_seq: int
    sent: int


StartResult: TypeAlias = Run | RepeatedQuery | OwnedElsewhere


def stopping() -> Overloaded:
    """Another replica takes the request at once."""
    return Overloaded("the service is being stopped; try again", retry_after_s=0)
