"""headrace eval: runs the cases of a suite with its agents and checks the results."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from pathlib import Path

import click
import msgspec

from headrace.cli.evaluation.asking import Evaluation
from headrace.cli.evaluation.checks import load_functions
from headrace.cli.evaluation.page import write_junit, write_page
from headrace.cli.evaluation.result import Journal
from headrace.cli.evaluation.suite import Suite, SuiteError, read_suite
from headrace.cli.evaluation.summary import HEAD, describe_differences, find_shortfalls, sum_up
from headrace.cli.facade.command import FacadeCommand
from headrace.cli.facade.exit_codes import FAILED
from headrace.cli.run_view.tables import print_table

_file = click.Path(dir_okay=False, path_type=Path)


@click.command("eval", cls=FacadeCommand)
@click.option("--journal", type=_file, help="Journal of results. [default: SUITE_FILE.journal]")
@click.option("--again", is_flag=True, help="Repeat all runs, including those in the journal.")
@click.option("--junit", type=_file, help="Write the results as JUnit XML.")
@click.option("--jsonl", type=_file, help="Write the results as JSON lines.")
@click.option("--html", type=_file, help="Write the results as a self-contained HTML page.")
@click.argument("suite_file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def eval(
    journal: Path | None, again: bool, junit: Path | None, jsonl: Path | None, html: Path | None, suite_file: Path
) -> None:
    """Run a suite of test cases against agents.

    An interrupted evaluation continues where it stopped. Exit codes: 0 the suite's thresholds are met, 1 they
    are not, 2 the suite is invalid, 3 no server.
    """
    path = journal or suite_file.with_name(f"{suite_file.name}.journal")
    _check_places(path, junit, jsonl, html)
    if again:
        path.unlink(missing_ok=True)
    try:
        suite = read_suite(suite_file)
        checks = [check for case in suite.cases for check in suite.list_checks(case)]
        functions = load_functions(checks, suite_file.parent)
        with Journal(path) as kept:
            evaluation = Evaluation(suite, suite_file.parent, functions, kept, _show_progress)
            asyncio.run(evaluation.run())
    except SuiteError as error:
        raise click.UsageError(str(error)) from error
    except msgspec.MsgspecError as error:
        raise click.UsageError(f"{path} is no journal of an evaluation: {error}") from error
    sys.exit(_report(suite_file.stem, suite, evaluation, junit, jsonl, html))


def _check_places(*paths: Path | None) -> None:
    """Raise UsageError if a file cannot be written, before the runs cost time and money."""
    for path in filter(None, paths):
        place = path if path.exists() else path.parent
        if not os.access(place, os.W_OK):
            code = errno.EACCES if place.exists() else errno.ENOENT
            raise click.UsageError(f"{path}: {os.strerror(code)}")


def _report(
    name: str, suite: Suite, evaluation: Evaluation, junit: Path | None, jsonl: Path | None, html: Path | None
) -> int:
    figures = sum_up(suite, evaluation.results)
    shortfalls = find_shortfalls(suite, figures, len(evaluation.planned))
    print_table(HEAD, [one.cells for one in figures], right=HEAD[1:])
    for line in (*describe_differences(figures), *shortfalls):
        click.echo(line)
    if junit is not None:
        junit.write_bytes(write_junit(figures))
    if jsonl is not None:
        jsonl.write_bytes(b"".join(msgspec.json.encode(result) + b"\n" for result in evaluation.results))
    if html is not None:
        html.write_text(write_page(name, suite, figures, shortfalls), encoding="utf-8")
    return FAILED if shortfalls else 0


def _show_progress(done: int, planned: int, cost_usd: float) -> None:
    if sys.stderr.isatty():
        filled = round(30 * done / planned)
        click.echo(
            f"\r{'█' * filled}{'·' * (30 - filled)} {done}/{planned} ${cost_usd:.4f}", nl=done == planned, err=True
        )
