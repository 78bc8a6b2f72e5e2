"""headrace limits: what holds for a user, and what is used of it."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from headrace.cli.facade.client import make_request
from headrace.cli.facade.options import url_option
from headrace.cli.operating.spend import NANO_PER_USD
from headrace.cli.run_view.printing import format_time, print_table


class _Limit(msgspec.Struct, frozen=True, rename="camel"):
    """A limit as GET /api/operator/limits has it."""

    name: str
    service: str
    subject: str = ""
    unit: str = ""
    per: str = ""
    source: str = ""
    source_name: str = ""
    value: int | None = None
    used: int | None = None
    period_ms: int = 0
    is_full: bool = False
    opens_at: int = 0

    @property
    def cells(self) -> list[str]:
        name = f"{self.name} {self.subject}" if self.subject else self.name
        source = f"{self.source}: {self.source_name}" if self.source_name else self.source
        opens = format_time(self.opens_at) if self.opens_at else "-"
        numbers = [self._format_number(self.used), self._format_number(self.value)]
        unit = "usd" if self.unit == "nano_usd" else self.unit
        period = f" in {self.period_ms / 1000:g} s" if self.period_ms else ""
        state = "full" if self.is_full else "open"
        return [name, *numbers, f"{unit}{period}", self.per, state, opens, source]

    def _format_number(self, number: int | None) -> str:
        if number is None:
            return "-"
        return f"{number / NANO_PER_USD:g}" if self.unit == "nano_usd" else str(number)


class _Limits(msgspec.Struct, frozen=True, rename="camel"):
    limits: list[_Limit]
    missing: list[str] = []
    is_cut: bool = False


@click.command()
@url_option
@click.option("--user", help="Of this user of the tenant; else of you.")
@click.option("--key", help="Also those of this API key (api_key:…).")
@click.option("--agent", help="Only the budgets of this agent; else of all.")
@click.option("--full", is_flag=True, help="Only those at which the next one would wait or be refused.")
def limits(url: str, user: str | None, key: str | None, agent: str | None, full: bool) -> None:
    """Show every limit that holds for a user: what is used of it, whom it counts together, who said it.

    What other tenants have used is not shown. Needs a credential with the scope operate.
    """
    given: dict[str, Any] = {"user": user, "key": key, "agentKey": agent}
    wanted = {name: value for name, value in given.items() if value}
    data = make_request(url, lambda facade: facade.get("/api/operator/limits", **wanted))
    found = msgspec.json.decode(data, type=_Limits)
    rows = [limit.cells for limit in found.limits if limit.is_full or not full]
    head = ("limit", "used", "of", "unit", "per", "state", "opens", "said by")
    print_table(head, rows, right=("used", "of"))
    if found.missing:
        click.echo(f"did not answer: {', '.join(found.missing)}", err=True)
    if found.is_cut:
        click.echo("budgets are left out: name an agent", err=True)
