"""headrace agents: the agents of a server, and their versions."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click
import msgspec

from headrace.cli.facade.client import make_request
from headrace.cli.facade.options import url_option
from headrace.cli.run_view.agent_list import print_agent_problems, print_agents
from headrace.cli.run_view.table import print_table
from headrace.cli.run_view.times import format_time


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    version: int
    hash: str
    created_at: int

    @property
    def cells(self) -> list[str]:
        return [str(self.version), self.hash[:12], format_time(self.created_at)]


class _Problem(msgspec.Struct, frozen=True, rename="camel"):
    field: str = ""
    rule: str = ""
    is_warning: bool = False


class _Validation(msgspec.Struct, frozen=True):
    problems: list[_Problem] = []


class _Change(msgspec.Struct, frozen=True):
    path: str
    before: msgspec.Raw = msgspec.Raw(b"")
    after: msgspec.Raw = msgspec.Raw(b"")


@click.group(invoke_without_command=True)
@url_option
@click.option("--tag", help="Only agents with this text in key, description, tools or skills.")
@click.option("--problems", is_flag=True, help="List the refused agent files instead; needs the scope operate.")
@click.pass_context
def agents(context: click.Context, url: str, tag: str | None, problems: bool) -> None:
    """List the agents: key, mode, description, tools."""
    if context.invoked_subcommand is None:
        asyncio.run(print_agent_problems(url) if problems else print_agents(url, tag))


@agents.command()
@url_option
@click.argument("agent_key")
def versions(url: str, agent_key: str) -> None:
    """List the last 50 versions of an agent that have had runs, the newest first."""
    data = make_request(url, lambda facade: facade.get("/api/agent/versions", agentKey=agent_key))
    rows = [version.cells for version in msgspec.json.decode(data, type=list[_Version])]
    print_table(("version", "hash", "first run"), rows, right=("version",))


@agents.command()
@url_option
@click.argument("agent_key")
@click.argument("from_version", type=click.IntRange(min=1), required=False)
@click.argument("to_version", type=click.IntRange(min=1), required=False)
def diff(url: str, agent_key: str, from_version: int | None, to_version: int | None) -> None:
    """Show what is different between two versions of an agent; without numbers between the last two.

    Needs a credential with the scope operate.
    """
    given = {"fromVersion": from_version, "toVersion": to_version}
    wanted = {name: str(number) for name, number in given.items() if number}
    data = make_request(url, lambda facade: facade.get("/api/agent/diff", agentKey=agent_key, **wanted))
    changes = msgspec.json.decode(data, type=list[_Change])
    for change in changes:
        click.echo(change.path)
        for sign, text in (("-", change.before), ("+", change.after)):
            if bytes(text):
                click.echo(f"  {sign} {bytes(text).decode()}")
    if not changes:
        click.echo("nothing is different")


@agents.command()
@url_option
@click.argument("file", type=click.Path(exists=True, dir_okay=False, readable=True, path_type=Path))
def validate(url: str, file: Path) -> None:
    """Say everything that is wrong with an agent FILE, and store nothing.

    Exit codes: 0 it would be accepted, perhaps with warnings, 1 it would not. Needs a credential with the scope
    publish.
    """
    body = {"definition": file.read_text(encoding="utf-8", errors="replace"), "agentKey": file.stem}
    data = make_request(url, lambda facade: facade.post("/api/agent/validate", body))
    problems = msgspec.json.decode(data, type=_Validation).problems
    for problem in problems:
        click.echo(f"{'warning: ' if problem.is_warning else ''}{problem.field or file.name}: {problem.rule}")
    if not problems:
        click.echo("nothing is wrong")
    sys.exit(any(not problem.is_warning for problem in problems))
