"""headrace gates watch: the gates that wait, and what becomes of them."""

from __future__ import annotations

import asyncio

import click
import msgspec

from headrace.cli.commands.gates.rows import Gate
from headrace.cli.facade.client import FacadeClient
from headrace.cli.facade.exit_codes import ServerUnreachable, StreamCut
from headrace.cli.facade.options import url_option
from headrace.cli.run_view.printing import print_shown

RETRY_S = 1.0
RETRIES_MAX = 60
"""Connections that fail one behind the other before the command gives up."""


class _News(msgspec.Struct, frozen=True, rename="camel"):
    """A frame of GET /api/gates/watch: one of these."""

    list_begin: dict[str, str] | None = None
    gate: Gate | None = None
    list_end: dict[str, str] | None = None


@click.command()
@url_option
@click.option("--own", "scope", flag_value="own", help="Those of your runs, instead of those that you may answer.")
@click.option("--tenant", "scope", flag_value="tenant", help="All of the tenant (a credential with the scope operate).")
@click.option(
    "--kind", type=click.Choice(["approval", "form", "question", "credential"]), help="Only gates of this kind."
)
@click.option("--risk", type=click.Choice(["critical", "high", "medium", "low"]), help="Only approvals of this risk.")
@click.option("--agent", "agent_key", help="Only gates of this agent.")
def watch(url: str, scope: str | None, kind: str | None, risk: str | None, agent_key: str | None) -> None:
    """Show the gates that wait, and each that opens, changes or closes, until Ctrl-C: state, then as `list` does."""
    given = {"kind": kind, "risk": risk, "agentKey": agent_key, "scope": scope}
    asyncio.run(_follow_gates(url, {name: value for name, value in given.items() if value}))


async def _follow_gates(url: str, wanted: dict[str, str]) -> None:
    shown, failures = _ShownGates(), 0
    while True:
        try:
            async with FacadeClient(url) as facade, facade.watch("/api/gates/watch", **wanted) as frames:
                async for frame in frames:
                    shown.apply(msgspec.json.decode(frame, type=_News))
                    failures = 0
        except (ServerUnreachable, StreamCut) as error:
            failures += 1
            if not shown.has_list or failures > RETRIES_MAX:
                raise
            if failures == 1:
                click.echo(f"{error}; trying again", err=True)
        await asyncio.sleep(RETRY_S)


class _ShownGates:
    """What was printed, so that a list that is told again is not printed again."""

    def __init__(self) -> None:
        self.has_list = False
        self._lines: dict[tuple[str, str], str] = {}
        self._listed: set[tuple[str, str]] = set()

    def apply(self, news: _News) -> None:
        if news.list_begin is not None:
            self._listed = set()
        elif news.gate is not None:
            self._show(news.gate)
        elif news.list_end is not None:
            self.has_list = True
            for key in self._lines.keys() - self._listed:
                del self._lines[key]
                print_shown(f"closed    {'  '.join(key)}")

    def _show(self, gate: Gate) -> None:
        key, line = (gate.run_id, gate.gate_id), f"{gate.state:9} {gate.line}"
        self._listed.add(key)
        if self._lines.get(key) != line:
            print_shown(line)
        if gate.state == "open":
            self._lines[key] = line
        else:
            self._lines.pop(key, None)
