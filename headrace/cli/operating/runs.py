"""headrace runs: the runs of all users of a tenant, listed, shown and ended."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, TypeVar

import click
import msgspec

from headrace.cli.facade.client import make_request
from headrace.cli.facade.options import url_option
from headrace.cli.operating.spend import NANO_PER_USD
from headrace.cli.run_view.printing import format_time, print_table, print_text
from headrace.run_states import State

STATES = ("live", *(state for state in State if state != State.QUEUED))

Command = TypeVar("Command", bound=Callable[..., Any])


class Run(msgspec.Struct, frozen=True, rename="camel"):
    """A run as GET /api/operator/runs has it."""

    run_id: str
    user: str
    agent_key: str
    state: str
    began_at: int
    reason: str = ""
    model_calls: int = 0
    cost_nano_usd: int = 0
    owner: str = ""

    @property
    def cells(self) -> list[str]:
        state = f"{self.state} ({self.reason})" if self.reason else self.state
        cost = f"{self.cost_nano_usd / NANO_PER_USD:.6f}"
        return [
            *(self.run_id, format_time(self.began_at), state, self.user, self.agent_key),
            *(cost, str(self.model_calls), self.owner or "-"),
        ]


class _Ended(msgspec.Struct, frozen=True, rename="camel"):
    run_id: str
    status: str
    reason: str = ""


class _Cancelled(msgspec.Struct, frozen=True, rename="camel"):
    runs: list[_Ended]
    next_page_token: str = ""


def filter_options(command: Command) -> Command:
    """Add the options that say which runs."""
    for option in (
        click.option("--count", default=50, show_default=True, type=click.IntRange(1, 200), help="How many at most."),
        click.option("--cost", type=float, metavar="USD", help="Only runs that have cost this much or more."),
        click.option("--within", type=float, metavar="HOURS", help="Only runs that began in the last so many hours."),
        click.option("--older", type=float, metavar="MINUTES", help="Only runs that began so long ago, or longer."),
        click.option("--user", help="Only runs of this user."),
        click.option("--agent", help="Only runs of this agent."),
        click.option("--state", type=click.Choice(STATES), help="Only runs in this state; live: running or waiting."),
    ):
        command = option(command)
    return command


def _make_filter(
    state: str | None,
    agent: str | None,
    user: str | None,
    older: float | None,
    within: float | None,
    cost: float | None,
    count: int,
) -> dict[str, Any]:
    given = {
        "state": state,
        "agentKey": agent,
        "user": user,
        "olderThanMs": None if older is None else round(older * 60_000),
        "beganAfter": None if within is None else round((time.time() - within * 3600) * 1000),
        "costAtLeastNanoUsd": None if cost is None else round(cost * NANO_PER_USD),
        "pageSize": count,
    }
    return {name: value for name, value in given.items() if value is not None}


@click.group()
def runs() -> None:
    """List, show and end the runs of all users of the tenant (a credential with the scope operate)."""


@runs.command("list")
@url_option
@filter_options
def list_runs(url: str, **options: Any) -> None:
    """List runs, the one that began last first: its state, whose it is, what it has cost so far (US dollars)."""
    wanted = {name: str(value) for name, value in _make_filter(**options).items()}
    data = make_request(url, lambda facade: facade.get("/api/operator/runs", **wanted))
    found = msgspec.json.decode(data, type=list[Run])
    head = ("run", "began", "state", "user", "agent", "usd", "calls", "owner")
    print_table(head, [run.cells for run in found], right=("usd", "calls"))
    if len(found) == options["count"]:
        click.echo(f"{options['count']} are shown; --count shows more", err=True)


@runs.command()
@url_option
@click.option("--events", is_flag=True, help="Its committed events too; with texts for the scope read_content alone.")
@click.argument("run_id")
def show(url: str, events: bool, run_id: str) -> None:
    """Show the run RUN_ID of any user as JSON."""
    wanted = {"runId": run_id} | ({"includeEvents": "true"} if events else {})
    data = make_request(url, lambda facade: facade.get("/api/operator/run", **wanted))
    click.echo(json.dumps(json.loads(bytes(data)), indent=2, ensure_ascii=False))


@runs.command()
@url_option
@filter_options
@click.option("--all", "is_all", is_flag=True, help="All live runs that the options name, instead of ids.")
@click.argument("run_ids", nargs=-1)
def cancel(url: str, is_all: bool, run_ids: tuple[str, ...], **options: Any) -> None:
    """End the runs RUN_IDS, or with --all the live ones that the options name, --count at a time.

    Says for each what became of it, and fails where one could not be ended.
    """
    if is_all == bool(run_ids):
        raise click.UsageError("give RUN_IDS, or --all with options that name runs")
    body: dict[str, Any] = {"filter": _make_filter(**options)} if is_all else {"runIds": [*run_ids]}
    data = make_request(url, lambda facade: facade.post("/api/operator/runs/cancel", body))
    cancelled = msgspec.json.decode(data, type=_Cancelled)
    for run in cancelled.runs:
        print_text(f"{run.run_id}  {run.status}{f' ({run.reason})' if run.reason else ''}")
    if cancelled.next_page_token:
        click.echo("there are more: run it again", err=True)
    if any(run.status in ("failed", "not_found") for run in cancelled.runs):
        raise SystemExit(1)
