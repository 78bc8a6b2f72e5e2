"""headrace gates watch: waits for gates and reports each as a line of the terminal."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from headrace.cli.facade.client import FacadeClient
from headrace.cli.facade.command import FacadeCommand
from headrace.cli.facade.exit_codes import ServerUnreachable, StreamCut
from headrace.cli.run_view.notices import describe_answerers
from headrace.cli.run_view.printing import format_time, print_shown
from headrace.v1 import gates_pb2

KINDS = ("approval", "form", "question", "credential")

RISKS = ("critical", "high", "medium", "low")


def name_answerers(gate: gates_pb2.Gate) -> str:
    """Return who may answer; empty if only the requester may."""
    rule = gate.answerers
    who = describe_answerers(rule.any_of, not_requester=rule.not_requester, count=rule.count)
    return who if who != f"user:{gate.requester}" else ""


def describe_gate(gate: gates_pb2.Gate) -> str:
    """Return a gate on one line: run, gate, since when, kind, tool, why, who must answer."""
    about = f"{gate.tool_name} of {gate.agent_key} for {gate.requester}"
    why = f" ({gate.risk} risk: {gate.reason})" if gate.kind == "approval" else ""
    why = f" ({gate.reason})" if gate.kind in ("credential", "form") and gate.reason else why
    who = name_answerers(gate)
    by = f", to be answered by {who}" if who else ""
    by += f" ({', '.join(gate.voters)} approved)" if gate.voters else ""
    if gate.claimed_by:
        by += f", being answered by {gate.claimed_by} until {format_time(gate.claimed_until)}"
    line = f"{gate.run_id}  {gate.gate_id}  {format_time(gate.opened_at)}  {gate.kind}  {about}{why}{by}"
    return line.replace("\n", "\\n")  # what others have written makes no second line, which would look like a gate


RETRY_S = 1.0
RETRIES_MAX = 60
"""Consecutive failed connections after which the command gives up."""


@click.command(cls=FacadeCommand)
@click.option(
    "--own", "scope", flag_value="own", help="Watch the gates of your own runs instead of those that you may answer."
)
@click.option("--tenant", "scope", flag_value="tenant", help="Watch all gates of the tenant; needs the scope operate.")
@click.option("--kind", type=click.Choice(KINDS), help="Only gates of this kind.")
@click.option("--risk", type=click.Choice(RISKS), help="Only approvals of this risk.")
@click.option("--agent", "agent_key", help="Only gates of this agent.")
def watch(**fields: Any) -> None:
    """Show open gates and their changes until Ctrl-C."""
    asyncio.run(_follow_gates(gates_pb2.WatchGatesRequest(**fields)))


async def _follow_gates(request: gates_pb2.WatchGatesRequest) -> None:
    shown, failures = _ShownGates(), 0
    while True:
        try:
            async with FacadeClient() as facade, facade.watch(request) as frames:
                async for news in frames:
                    shown.apply(news)
                    failures = 0
        except (ServerUnreachable, StreamCut) as error:
            failures += 1
            if not shown.has_list or failures > RETRIES_MAX:
                raise
            if failures == 1:
                click.echo(f"{error}; trying again", err=True)
        await asyncio.sleep(RETRY_S)


class _ShownGates:
    """Printed lines, so that a list sent again is not printed again."""

    def __init__(self) -> None:
        self.has_list = False
        self._lines: dict[tuple[str, str], str] = {}
        self._listed: set[tuple[str, str]] = set()

    def apply(self, news: gates_pb2.WatchGatesResponse) -> None:
        if news.HasField("list_begin"):
            self._listed = set()
        elif news.HasField("gate"):
            self._show(news.gate)
        elif news.HasField("list_end"):
            self.has_list = True
            for key in self._lines.keys() - self._listed:
                del self._lines[key]
                print_shown(f"closed    {'  '.join(key)}")

    def _show(self, gate: gates_pb2.Gate) -> None:
        key, line = (gate.run_id, gate.gate_id), f"{gate.state:9} {describe_gate(gate)}"
        self._listed.add(key)
        if self._lines.get(key) != line:
            print_shown(line)
        if gate.state == "open":
            self._lines[key] = line
        else:
            self._lines.pop(key, None)
