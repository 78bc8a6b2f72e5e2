"""The results of a query that was to begin a run here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from headrace.errors import Overloaded
from services.orchestrator.run.run import Run


@dataclass(frozen=True, slots=True)
class RepeatedQuery:
    """The chat has a run of this very query."""

    run_id: str


@dataclass(frozen=True, slots=True)
class OwnedElsewhere:
    """Another process owns the chat's runs and keeps their order, so nothing was begun."""

    run_id: str
    """It may be any of the chat's runs."""


StartResult: TypeAlias = Run | RepeatedQuery | OwnedElsewhere


def stopping() -> Overloaded:
    """Make the error of a process that stops; another replica takes the request at once."""
    return Overloaded("the service is being stopped; try again", retry_after_s=0)
