"""What became of a query that was to begin a run here."""

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
    """Nothing was begun: the chat's runs are another's, who keeps their order."""

    run_id: str
    """One of them."""


StartResult: TypeAlias = Run | RepeatedQuery | OwnedElsewhere


def stopping() -> Overloaded:
    """The error for what this process begins no more; another replica takes it at once."""
    return Overloaded("the service is being stopped; try again", retry_after_s=0)
