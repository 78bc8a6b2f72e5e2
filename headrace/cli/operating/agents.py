"""headrace agents: list agents, compare their versions, and manage the tenant's own."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from headrace.cli.facade.client import send_request
from headrace.cli.facade.command import CommandGroup
from headrace.cli.rpc_commands import add_command
from headrace.cli.run_view.answers import Show, json_option, list_rows, show_fields, show_request
from headrace.cli.run_view.lists import AGENTS
from headrace.cli.run_view.printing import print_text
from headrace.cli.run_view.tables import NONE
from headrace.v1 import agent_pb2

_file = click.argument("file", type=click.Path(exists=True, dir_okay=False, readable=True, path_type=Path))


agents = CommandGroup("agents", help="List agents; manage versions and the tenant's own agents.")


def _show_changes(changes: Sequence[agent_pb2.AgentChange]) -> None:
    for change in changes:
        print_text(change.path)
        for sign, text in (("-", change.before), ("+", change.after)):
            if text:
                print_text(f"  {sign} {text}")
    if not changes:
        click.echo("nothing is different")


def _describe_problem(problem: agent_pb2.DefinitionProblem, place: str = "") -> str:
    return f"{'warning: ' if problem.is_warning else ''}{problem.field or place}: {problem.rule}"


add_command(agents, "list", "AgentService/ListAgents", AGENTS)
add_command(
    agents,
    "problems",
    "AgentService/ListAgentProblems",
    list_rows(
        *("file", "agent_key"),
        ("in force", lambda problem: "last good version" if problem.file and problem.agent_key else NONE),
        "problem",
    ),
    about="List rejected agent files and the tenant's inactive agents.",
)
add_command(
    agents,
    "versions",
    "AgentService/ListAgentVersions",
    list_rows("version", ("hash", lambda version: version.hash[:12]), "created_at:first run"),
)
add_command(
    agents,
    "diff",
    "AgentService/DiffAgentVersions",
    Show(_show_changes, is_list=True),
    about="Compare two versions of an agent.\n\nWithout numbers, compares the last two.",
    arguments="agent_key [from_version] [to_version]",
)
add_command(agents, "delete", "AgentService/DeleteAgent")
add_command(
    agents,
    "stored",
    "AgentService/ListStoredAgents",
    list_rows(
        *("key", "version", "updated_at", "updated_by:by"),
        ("state", lambda agent: "; ".join(map(_describe_problem, agent.problems)) or "in force"),
    ),
)
add_command(
    agents,
    "show",
    "AgentService/GetAgentDefinition",
    show_fields("definition"),
    about="Print the definition of one of the tenant's own agents.",
)


@agents.command()
@json_option
@click.option(
    "--for-tenant", is_flag=True, help="Also check it against the operator's grants to the tenant's own agents."
)
@_file
def validate(file: Path, for_tenant: bool) -> None:
    """List everything that is wrong with an agent file.

    Nothing is stored. Exit codes: 0 it would be accepted, perhaps with warnings, 1 it would not. Needs a credential
    with the scope publish.
    """
    request = agent_pb2.ValidateAgentRequest(**_read_definition(file), for_tenant=for_tenant)

    def show(problems: Sequence[agent_pb2.DefinitionProblem]) -> None:
        _print_problems(file, problems)
        if not problems:
            click.echo("nothing is wrong")

    problems = show_request(request, Show(show, is_list=True)).problems
    sys.exit(any(not problem.is_warning for problem in problems))


@agents.command()
@click.option("--expected-version", type=click.IntRange(min=0), help="Version that must be in force now; 0: none.")
@_file
def put(file: Path, expected_version: int | None) -> None:
    """Publish an agent file as one of the tenant's own agents.

    Prints its key and version.

    Exit codes: 0 it is in force, perhaps with warnings, 1 it has errors and nothing is stored. Needs a credential with
    the scope publish.
    """
    request = agent_pb2.PutAgentRequest(**_read_definition(file), expected_version=expected_version)
    answer: agent_pb2.PutAgentResponse = send_request(request)
    _print_problems(file, answer.problems)
    if not answer.is_stored:
        sys.exit(1)
    click.echo(f"{answer.agent.key} version {answer.agent.version}")


def _read_definition(file: Path) -> dict[str, Any]:
    return {"definition": file.read_text(encoding="utf-8", errors="replace"), "agent_key": file.stem}


def _print_problems(file: Path, problems: Iterable[agent_pb2.DefinitionProblem]) -> None:
    for problem in problems:
        print_text(_describe_problem(problem, file.name))
