"""headrace tools: what agents may call, and what cannot be used."""

from __future__ import annotations

import click
import msgspec

from headrace.cli.facade.client import make_request
from headrace.cli.facade.options import url_option
from headrace.cli.run_view.printing import print_table


class _Tool(msgspec.Struct, frozen=True):
    name: str
    tier: str = ""
    effect: str = ""
    unavailable: str = ""

    @property
    def cells(self) -> list[str]:
        return [self.name, self.tier, self.effect, self.unavailable]


@click.command()
@url_option
def tools(url: str) -> None:
    """List the tools: name, tier, effect, and why one cannot be used."""
    data = make_request(url, lambda facade: facade.get("/api/tools"))
    rows = [tool.cells for tool in msgspec.json.decode(data, type=list[_Tool])]
    print_table(("tool", "tier", "effect", "cannot be used"), rows)
