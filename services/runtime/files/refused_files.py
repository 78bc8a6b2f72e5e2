"""Reads configuration files into models, and reports those that are refused.

Without a report, the last good version, which stays in force, would hide the mistake until a restart.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import structlog
from prometheus_client import Gauge

from headrace.yaml_loading import load_yaml

if TYPE_CHECKING:
    from pydantic import BaseModel


REFUSED_FILES = Gauge(
    "headrace_refused_files", "Configuration files that are refused now; what was good last stays in force.", ("kind",)
)

M = TypeVar("M", bound="BaseModel")

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Refusal:
    """A file, or an entry of one, refused by its reader."""

    file: str
    """The file's name as its reader reports it: a path, or a name within its folder."""

    problem: str
    """Problems with field and rule, one per line."""


_refusals: ContextVar[list[Refusal] | None] = ContextVar("refusals", default=None)


@contextmanager
def collecting_refusals() -> Generator[list[Refusal]]:
    """Collect the refusals of readers inside the block, in this task or thread."""
    refusals: list[Refusal] = []
    token = _refusals.set(refusals)
    try:
        yield refusals
    finally:
        _refusals.reset(token)


def report_refusal(event: str, *, file: str, problem: str, **facts: object) -> None:
    """Log `event` for a refused file, with further facts."""
    log.error(event, file=file, problem=problem, **facts)
    if (refusals := _refusals.get()) is not None:
        refusals.append(Refusal(file, problem))


def load_yaml_model(data: bytes, model: type[M]) -> M:
    """Return the model; an empty file counts as one without fields. Raises ValueError with one `field: rule` line per
    problem."""
    from pydantic import ValidationError  # slow to import, and loaded already if there is a model

    try:
        content = load_yaml(data)
        return model.model_validate({} if content is None else content)
    except ValidationError as error:
        found = error.errors(include_input=False)
        lines = [f"{'.'.join(map(str, problem['loc'])) or 'file'}: {problem['msg']}" for problem in found]
        raise ValueError("\n".join(lines)) from error
