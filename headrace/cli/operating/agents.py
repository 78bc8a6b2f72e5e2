"""headrace agents: the agents of a server, their versions, and those that a tenant keeps itself."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from headrace.cli.facade.client import make_request
from headrace.cli.facade.options import url_option
from headrace.cli.run_view.lists import print_agent_problems, print_agents
from headrace.cli.run_view.printing import format_time, print_table, print_text


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


class _Put(msgspec.Struct, frozen=True, rename="camel"):
    problems: list[_Problem] = []
    is_stored: bool = False
    agent: msgspec.Raw = msgspec.Raw(b"{}")


class _Named(msgspec.Struct, frozen=True):
    key: str
    version: int = 0


class _Stored(msgspec.Struct, frozen=True, rename="camel"):
    key: str
    version: int
    updated_at: int
    updated_by: str
    problems: list[_Problem] = []

    @property
    def cells(self) -> list[str]:
        state = "; ".join(f"{problem.field}: {problem.rule}" for problem in self.problems) or "in force"
        return [self.key, str(self.version), format_time(self.updated_at), self.updated_by, state]


class _Definition(msgspec.Struct, frozen=True):
    definition: str


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
    """List the last 50 versions of an agent that were published or have had runs, the newest first."""
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
        print_text(change.path)
        for sign, text in (("-", change.before), ("+", change.after)):
            if bytes(text):
                print_text(f"  {sign} {bytes(text).decode()}")
    if not changes:
        click.echo("nothing is different")


_expected = click.option(
    "--expected-version", type=click.IntRange(min=0), help="The version that must be in force now; 0: none."
)


@agents.command()
@url_option
@click.option("--for-tenant", is_flag=True, help="Also against what the operator grants to the tenant's own agents.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, readable=True, path_type=Path))
def validate(url: str, file: Path, for_tenant: bool) -> None:
    """Say everything that is wrong with an agent FILE, and store nothing.

    Exit codes: 0 it would be accepted, perhaps with warnings, 1 it would not. Needs a credential with the scope
    publish.
    """
    body = _make_body(file) | {"forTenant": for_tenant}
    data = make_request(url, lambda facade: facade.post("/api/agent/validate", body))
    problems = msgspec.json.decode(data, type=_Validation).problems
    _print_problems(file, problems)
    if not problems:
        click.echo("nothing is wrong")
    sys.exit(any(not problem.is_warning for problem in problems))


@agents.command()
@url_option
@_expected
@click.argument("file", type=click.Path(exists=True, dir_okay=False, readable=True, path_type=Path))
def put(url: str, file: Path, expected_version: int | None) -> None:
    """Bring an agent FILE in force as the tenant's own; print its key and version.

    Exit codes: 0 it is in force, perhaps with warnings, 1 it has errors and nothing is stored. Needs a credential with
    the scope publish.
    """
    body = _make_body(file) | ({} if expected_version is None else {"expectedVersion": expected_version})
    answer = msgspec.json.decode(make_request(url, lambda facade: facade.post("/api/agent", body)), type=_Put)
    _print_problems(file, answer.problems)
    if not answer.is_stored:
        sys.exit(1)
    agent = msgspec.json.decode(answer.agent, type=_Named)
    click.echo(f"{agent.key} version {agent.version}")


@agents.command()
@url_option
@_expected
@click.argument("agent_key")
def delete(url: str, agent_key: str, expected_version: int | None) -> None:
    """Take an agent of the tenant's own out of force; its runs go on, and its versions stay.

    Needs a credential with the scope publish.
    """
    wanted = {} if expected_version is None else {"expectedVersion": str(expected_version)}
    make_request(url, lambda facade: facade.delete("/api/agent", agentKey=agent_key, **wanted))


@agents.command("stored")
@url_option
def list_stored(url: str) -> None:
    """List the tenant's own agents: key, version, when and by whom it was put, and why it is not in force.

    Needs a credential with the scope publish.
    """
    data = make_request(url, lambda facade: facade.get("/api/agents/stored"))
    rows = [agent.cells for agent in msgspec.json.decode(data, type=list[_Stored])]
    print_table(("key", "version", "put", "by", "state"), rows, right=("version",))


@agents.command()
@url_option
@click.option("--version", type=click.IntRange(min=1), help="An earlier version; without it what was put last.")
@click.argument("agent_key")
def show(url: str, agent_key: str, version: int | None) -> None:
    """Print the definition of an agent of the tenant's own, as `put` takes it.

    Needs a credential with the scope publish.
    """
    wanted = {} if version is None else {"version": str(version)}
    data = make_request(url, lambda facade: facade.get("/api/agent/definition", agentKey=agent_key, **wanted))
    click.echo(msgspec.json.decode(data, type=_Definition).definition)


def _make_body(file: Path) -> dict[str, Any]:
    return {"definition": file.read_text(encoding="utf-8", errors="replace"), "agentKey": file.stem}


def _print_problems(file: Path, problems: list[_Problem]) -> None:
    for problem in problems:
        print_text(f"{'warning: ' if problem.is_warning else ''}{problem.field or file.name}: {problem.rule}")
