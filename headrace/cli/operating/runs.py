"""headrace runs: the runs of all users of a tenant, listed, shown and ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import click

from headrace.cli.facade.command import CommandGroup
from headrace.cli.run_view.answers import SHOW_JSON, json_option, list_rows, show_request
from headrace.cli.run_view.tables import NANO_PER_USD
from headrace.run_states import State
from headrace.v1 import operator_pb2

STATES = ("live", *(state.value for state in State if state != State.QUEUED))


def _filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say which runs."""
    for option in (
        click.option(
            "--count", default=50, show_default=True, type=click.IntRange(1, 200), help="Maximum number of runs."
        ),
        click.option("--cost", type=float, metavar="USD", help="Only runs that cost at least this much."),
        click.option("--within", type=float, metavar="HOURS", help="Only runs that began in the last HOURS."),
        click.option("--older", type=float, metavar="MINUTES", help="Only runs that began at least MINUTES ago."),
        click.option("--user", help="Only runs of this user."),
        click.option("--agent", "agent_key", help="Only runs of this agent."),
        click.option(
            "--state", type=click.Choice(STATES), help="Only runs in this state; live means running or waiting."
        ),
    ):
        command = option(command)
    return command


def _make_filter(
    older: float | None, within: float | None, cost: float | None, count: int, **fields: Any
) -> operator_pb2.OperatorListRunsRequest:
    return operator_pb2.OperatorListRunsRequest(
        older_than_ms=None if older is None else round(older * 60_000),
        began_after=None if within is None else round((time.time() - within * 3600) * 1000),
        cost_at_least_nano_usd=None if cost is None else round(cost * NANO_PER_USD),
        page_size=count,
        **fields,
    )


_RUNS = list_rows(
    *("run_id:id", "began_at"),
    ("state", lambda run: f"{run.state} ({run.reason})" if run.reason else run.state),
    *("user", "agent_key", "cost_nano_usd:usd", "model_calls:calls", "owner"),
)


@click.group(cls=CommandGroup)
def runs() -> None:
    """List, show and cancel the runs of all users.

    Needs a credential with the scope operate.
    """


@runs.command("list")
@json_option
@_filter_options
def list_runs(**options: Any) -> None:
    """List runs, newest first."""
    show_request(_make_filter(**options), _RUNS)


@runs.command()
@json_option
@click.option("--events", is_flag=True, help="Include its committed events; their texts need the scope read_content.")
@click.argument("run_id")
def show(events: bool, run_id: str) -> None:
    """Show a run of any user as JSON."""
    show_request(operator_pb2.OperatorGetRunRequest(run_id=run_id, include_events=events), SHOW_JSON)


@runs.command()
@json_option
@_filter_options
@click.option("--all", "is_all", is_flag=True, help="Cancel all live runs that match the options.")
@click.argument("run_ids", nargs=-1)
def cancel(is_all: bool, run_ids: tuple[str, ...], **options: Any) -> None:
    """Cancel runs.

    Cancels RUN_IDS, or with --all the live runs that match the options, at most --count. Prints the outcome of each.
    Exit codes: 0 all were cancelled, 1 at least one could not be.
    """
    if is_all == bool(run_ids):
        raise click.UsageError("give RUN_IDS, or --all with options that select runs")
    request = operator_pb2.CancelRunsRequest(run_ids=run_ids, filter=_make_filter(**options) if is_all else None)
    cancelled: operator_pb2.CancelRunsResponse = show_request(request, list_rows("run_id:id", "status", "reason"))
    if any(run.status in ("failed", "not_found") for run in cancelled.runs):
        raise SystemExit(1)
