"""headrace gates watch: waits for gates and reports each as a line of the terminal."""

from __future__ import annotations

import asyncio

import click
import msgspec

from headrace.cli.facade.client import FacadeClient
from headrace.cli.facade.exit_codes import ServerUnreachable, StreamCut
from headrace.cli.facade.options import url_option
from headrace.cli.run_view.notices import describe_answerers
from headrace.cli.run_view.printing import format_time, print_shown


class _Answerers(msgspec.Struct, frozen=True, rename="camel"):
    any_of: tuple[str, ...] = ()
    not_requester: bool = False
    count: int = 1


class Gate(msgspec.Struct, frozen=True, rename="camel"):
    """A gate as GET /api/gates and GET /api/gates/watch have it."""

    run_id: str
    gate_id: str
    agent_key: str
    kind: str
    tool_name: str
    requester: str
    opened_at: int
    state: str = "open"
    risk: str = ""
    reason: str = ""
    answerers: _Answerers = _Answerers()
    voters: tuple[str, ...] = ()
    claimed_by: str = ""
    claimed_until: int = 0

    @property
    def line(self) -> str:
        about = f"{self.tool_name} of {self.agent_key} for {self.requester}"
        why = f" ({self.risk} risk: {self.reason})" if self.kind == "approval" else ""
        why = f" ({self.reason})" if self.kind in ("credential", "form") and self.reason else why
        rule = self.answerers
        who = describe_answerers(rule.any_of, not_requester=rule.not_requester, count=rule.count)
        by = f", to be answered by {who}" if who not in ("", f"user:{self.requester}") else ""
        by += f" ({', '.join(self.voters)} approved)" if self.voters else ""
        if self.claimed_by:
            by += f", being answered by {self.claimed_by} until {format_time(self.claimed_until)}"
        line = f"{self.run_id}  {self.gate_id}  {format_time(self.opened_at)}  {self.kind}  {about}{why}{by}"
        return line.replace("\n", "\\n")  # what others have written makes no second line, which would look like a gate


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
