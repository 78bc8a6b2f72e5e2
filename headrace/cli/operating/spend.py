"""headrace spend: show the cost of model calls by user, agent, model or key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from headrace.cli.facade.command import FacadeCommand
from headrace.cli.run_view.answers import Show, json_option, show_request
from headrace.cli.run_view.tables import NANO_PER_USD, NONE, print_table
from headrace.v1 import spend_pb2

GROUPS = {"day": "day", "user": "user", "agent": "agent_key", "model": "model", "key": "key"}
"""Field of a row by the word that groups by it."""


@click.command(cls=FacadeCommand)
@json_option
@click.option(
    "--by", "groups", multiple=True, type=click.Choice(list(GROUPS)), help="Group the rows by this. Repeatable."
)
@click.option(
    "--from", "from_day", metavar="DAY", help="First day (UTC), such as 2026-11-01. Default: 29 days before the last."
)
@click.option("--to", "to_day", metavar="DAY", help="Last day (UTC). Default: today.")
@click.option(
    "--tenant", "scope", flag_value="tenant", help="Show the cost of all users of the tenant instead of your own."
)
@click.option("--user", help="With --tenant: only the cost of this user.")
@click.option("--agent", "agent_key", help="Only calls by this agent.")
@click.option("--model", help="Only calls of this model, such as openai/gpt-5-mini.")
@click.option("--key", help="Only calls with this API key (api_key:…).")
def spend(groups: tuple[str, ...], **fields: Any) -> None:
    """Show the cost of model calls.

    Lists US dollars, input tokens, those of them read from a cache, output tokens, and calls.
    """
    shown = list(dict.fromkeys(groups or ("day",)))
    request = spend_pb2.GetUsageRequest(group_by=shown, **fields)
    usage: spend_pb2.GetUsageResponse = show_request(request, Show(lambda usage: _print_usage(usage, shown)))
    if usage.is_cut:
        click.echo("rows are left out: ask for fewer days or groups", err=True)


def _print_usage(usage: spend_pb2.GetUsageResponse, shown: Sequence[str]) -> None:
    lines = [[*(getattr(row, GROUPS[group]) or NONE for group in shown), *_format_sums(row)] for row in usage.rows]
    head = [*shown, "usd", "in", "cached", "out", "calls"]
    foot = ["total", *[""] * (len(shown) - 1), *_format_sums(usage.total)]
    print_table(head, [*lines, foot], right=head[len(shown) :])


def _format_sums(row: spend_pb2.UsageRow) -> list[str]:
    tokens = (row.input_tokens, row.cached_tokens, row.output_tokens, row.model_calls)
    return [f"{row.cost_nano_usd / NANO_PER_USD:.6f}", *map(str, tokens)]
