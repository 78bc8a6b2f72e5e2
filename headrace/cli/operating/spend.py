"""headrace spend: what model calls have cost, and whom."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from headrace.cli.facade.client import make_request
from headrace.cli.facade.options import url_option
from headrace.cli.run_view.printing import print_table

GROUPS = ("day", "user", "agent", "model", "key")

NANO_PER_USD = 1_000_000_000


class Row(msgspec.Struct, frozen=True, rename="camel"):
    """A row as GET /api/usage has it."""

    day: str = ""
    user: str = ""
    agent_key: str = ""
    model: str = ""
    key: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    model_calls: int = 0
    cost_nano_usd: int = 0

    def get_group(self, group: str) -> str:
        return getattr(self, "agent_key" if group == "agent" else group) or "-"

    def format_sums(self) -> list[str]:
        tokens = (self.input_tokens, self.cached_tokens, self.output_tokens, self.model_calls)
        return [f"{self.cost_nano_usd / NANO_PER_USD:.6f}", *map(str, tokens)]


class _Usage(msgspec.Struct, frozen=True, rename="camel"):
    rows: list[Row]
    total: Row
    from_day: str
    to_day: str
    is_cut: bool = False


@click.command()
@url_option
@click.option("--by", "groups", multiple=True, type=click.Choice(GROUPS), help="Rows for each of these; repeatable.")
@click.option("--from", "from_day", metavar="DAY", help="First day (UTC), such as 2026-11-01; else 29 before the last.")
@click.option("--to", "to_day", metavar="DAY", help="Last day; else today.")
@click.option("--tenant", is_flag=True, help="That of all users of the tenant, instead of your own.")
@click.option("--user", help="Only that of this user, with --tenant.")
@click.option("--agent", help="Only that of this agent.")
@click.option("--model", help="Only that of this model, as provider/model.")
@click.option("--key", help="Only that of this API key (api_key:…).")
def spend(
    url: str,
    groups: tuple[str, ...],
    from_day: str | None,
    to_day: str | None,
    tenant: bool,
    user: str | None,
    agent: str | None,
    model: str | None,
    key: str | None,
) -> None:
    """Show what model calls have cost: US dollars, tokens in, of these cached, tokens out, calls."""
    given = {
        "fromDay": from_day,
        "toDay": to_day,
        "scope": "tenant" if tenant else None,
        "user": user,
        "agentKey": agent,
        "model": model,
        "key": key,
    }
    shown = groups or ("day",)
    wanted: dict[str, Any] = {"groupBy": list(dict.fromkeys(shown))}
    wanted |= {name: value for name, value in given.items() if value}
    usage = msgspec.json.decode(make_request(url, lambda facade: facade.get("/api/usage", **wanted)), type=_Usage)
    lines = [[*(row.get_group(group) for group in wanted["groupBy"]), *row.format_sums()] for row in usage.rows]
    head = [*wanted["groupBy"], "usd", "in", "cached", "out", "calls"]
    foot = ["total", *[""] * (len(wanted["groupBy"]) - 1), *usage.total.format_sums()]
    print_table(head, [*lines, foot], right=head[len(wanted["groupBy"]) :])
    if usage.is_cut:
        click.echo("rows are left out: ask for fewer days or groups", err=True)
