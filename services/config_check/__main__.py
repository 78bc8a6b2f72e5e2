"""`python -m services.config_check FOLDER` prints what the services would refuse, and without FOLDER what this machine
lacks; `headrace check` and `headrace doctor` run it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
import structlog

from services.config_check.definitions import (
    AGENTS,
    APPROVALS,
    BUDGETS,
    GRANTS,
    MCP_FILE,
    MODES,
    PROVIDER_FILE,
    RETENTION,
    SKILLS,
    TOOLS,
    Definitions,
    read_definitions,
)
from services.config_check.machine import examine_machine, print_findings
from services.config_check.references import find_missing, find_unset_secrets
from services.tools.catalogue.tools_folder import VIEWS_FOLDER

READ = (
    *(AGENTS, PROVIDER_FILE, TOOLS, VIEWS_FOLDER, "tools.yaml", MCP_FILE, SKILLS, MODES, APPROVALS, BUDGETS, GRANTS),
    RETENTION,
)
"""Files and folders that the services read."""

BAD = 1
"""Exit status where there are problems."""


class AnyEnvironment(Mapping[str, str]):
    """Has each variable: where files are written, nobody knows the secrets of where they will be used."""

    def __getitem__(self, name: str) -> str:
        return name

    def __contains__(self, name: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def check_folder(folder: Path, env: Mapping[str, str] | None) -> tuple[Definitions, list[str]]:
    """Return what the folder defines and its problems, as `file: field: rule`.

    With `env`, secrets that it does not have are problems too.
    """
    definitions, refusals = read_definitions(folder, AnyEnvironment() if env is None else env)
    refusals += find_missing(definitions)
    if env is not None:
        refusals += find_unset_secrets(definitions, env)
    return definitions, [f"{refusal.file}: {line}" for refusal in refusals for line in refusal.problem.splitlines()]


def _count(definitions: Definitions) -> str:
    counts = {
        "agents": definitions.agents,
        "providers": definitions.providers,
        "tools": definitions.tools,
        "skills": definitions.skills,
        "MCP servers": definitions.mcp_servers,
    }
    return ", ".join(f"{name} {len(values)}" for name, values in counts.items())


@click.command(name="services.config_check")
@click.argument("folder", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--secrets", is_flag=True)
def main(folder: Path | None, secrets: bool) -> None:
    # What the readers log is what is printed, in another form.
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory(), processors=[])
    if folder is None:
        sys.exit(not print_findings(asyncio.run(examine_machine(os.environ))))
    if not any((folder / name).is_file() or any((folder / name).glob("*")) for name in READ):
        click.echo(
            f"{folder} is empty: it has none of {', '.join(READ)}; `headrace init DIR` creates a project", err=True
        )
        sys.exit(BAD)
    definitions, problems = check_folder(folder, os.environ if secrets else None)
    for problem in problems:
        click.echo(problem)
    if problems:
        click.echo(f"{folder}: problems: {len(problems)}", err=True)
        sys.exit(BAD)
    click.echo(f"{folder}: no problems ({_count(definitions)})")


if __name__ == "__main__":
    main()
