"""What was found in a file of lines that have a hash chain."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol

import click


class ChainReport(Protocol):
    @property
    def lines(self) -> int: ...
    @property
    def last_hash(self) -> str: ...
    @property
    def problem(self) -> str: ...


@contextmanager
def refusing_other_files() -> Generator[None]:
    """Read a file inside the block; raises ClickException where it is no text."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise click.ClickException(f"it is no text in UTF-8: {error}") from error


def print_report(report: ChainReport, known_hash: str | None, what: str) -> None:
    """Print that all lines are as they were written.

    Raises:
        ClickException: The first place that is wrong, or that `what` ends with another hash than the one that is known.
    """
    problem = report.problem
    if not problem and known_hash not in (None, report.last_hash):
        problem = f"it is another {what}: its last hash is {report.last_hash}"
    if problem:
        raise click.ClickException(problem)
    click.echo(f"{report.lines} lines are as they were written, the last hash is {report.last_hash}")
