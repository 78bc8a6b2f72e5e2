"""headrace limits: list a user's limits and their use."""

from __future__ import annotations

from typing import Any, Literal

import click

from headrace.cli.facade.command import FacadeCommand
from headrace.cli.run_view.answers import json_option, list_rows, show_request
from headrace.cli.run_view.tables import NANO_PER_USD, NONE, Column
from headrace.v1 import limits_pb2


def _format_number(limit: limits_pb2.Limit, name: Literal["used", "value"]) -> str:
    if not limit.HasField(name):
        return NONE
    number = getattr(limit, name)
    return f"{number / NANO_PER_USD:g}" if limit.unit == "nano_usd" else str(number)


COLUMNS: tuple[Column, ...] = (
    ("limit", lambda limit: f"{limit.name} {limit.subject}"),
    ("used", lambda limit: _format_number(limit, "used")),
    ("of", lambda limit: _format_number(limit, "value")),
    (
        "unit",
        lambda limit: (
            ("usd" if limit.unit == "nano_usd" else limit.unit)
            + (f" in {limit.period_ms / 1000:g} s" if limit.period_ms else "")
        ),
    ),
    "per",
    ("state", lambda limit: limit.breaker or ("full" if limit.is_full else "free")),
    "opens_at:until",
    ("set by", lambda limit: ": ".join(filter(None, (limit.source, limit.source_name)))),
)


@click.command(cls=FacadeCommand)
@click.option("--user", default="", help="Show the limits of this user. Default: your own.")
@click.option("--key", default="", help="Include the limits of this API key (api_key:…).")
@click.option("--agent", "agent_key", default="", help="Only budgets of this agent. Default: all agents.")
@json_option
@click.option("--full", is_flag=True, help="Only limits that are reached.")
def limits(full: bool, **fields: Any) -> None:
    """List the limits that apply to a user, and their use.

    The use by other tenants is not included. `until` is the time at which a limit is free again or its period ends.
    Needs a credential with the scope operate.
    """
    request = limits_pb2.GetLimitsRequest(**fields)
    show = list_rows(*COLUMNS, keep=lambda limit: limit.is_full or not full)
    found: limits_pb2.GetLimitsResponse = show_request(request, show)
    if found.missing:
        click.echo(f"did not answer: {', '.join(found.missing)}", err=True)
    if found.is_cut:
        click.echo("budgets are left out: name an agent", err=True)
