"""Reports configuration files that are refused: the last good ones, which stay, hide the mistake until a restart."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import structlog
from prometheus_client import Gauge

REFUSED_FILES = Gauge(
    "headrace_refused_files", "Configuration files that are refused now; what was good last stays in force.", ("kind",)
)

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Refusal:
    """A file, or an entry of one, that its reader refuses."""

    file: str
    """The file as its reader names it: a path, or a name within its folder."""

    problem: str
    """What is wrong, with field and rule; one problem a line."""


_refusals: ContextVar[list[Refusal] | None] = ContextVar("refusals", default=None)


@contextmanager
def collecting_refusals() -> Generator[list[Refusal]]:
    """Collect what readers refuse inside the block, in this task or thread."""
    refusals: list[Refusal] = []
    token = _refusals.set(refusals)
    try:
        yield refusals
    finally:
        _refusals.reset(token)


def report_refusal(event: str, *, file: str, problem: str, **facts: object) -> None:
    """Log that a file is refused as `event`, with what else is known of it."""
    log.error(event, file=file, problem=problem, **facts)
    if (refusals := _refusals.get()) is not None:
        refusals.append(Refusal(file, problem))
