"""Prints the result of verifying a file with a hash chain."""

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
    """Read a file inside the block; ClickException if it is not UTF-8 text."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise click.ClickException(f"it is not UTF-8 text: {error}") from error


def print_report(report: ChainReport, known_hash: str | None, what: str) -> None:
    """Print that all lines are unchanged.

    Raises:
        ClickException: A line is wrong, or `what` does not end with the known hash.
    """
    problem = report.problem
    if not problem and known_hash not in (None, report.last_hash):
        problem = f"it is another {what}: its last hash is {report.last_hash}"
    if problem:
        raise click.ClickException(problem)
    click.echo(f"{report.lines} lines are as they were written, the last hash is {report.last_hash}")
