"""headrace check: find what the services would refuse in a configuration folder."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import click

from headrace.cli.supervisor.child_environment import read_env_file


@click.command()
@click.argument("config_dir", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--secrets",
    is_flag=True,
    help="Also tell secrets of providers, tools and MCP servers that are set neither here nor in .env.",
)
def check(config_dir: Path, secrets: bool) -> None:
    """Check the files of a configuration folder.

    Reads agents, providers, tools, skills and rules. Prints each problem as file, field and rule, and exits with 1 if
    there is one. No service is started and nothing is sent. Names of models, tools, skills and agents are looked up
    where CONFIG_DIR has both agents/ and providers.json.
    """
    variables: dict[str, str] = {}
    if secrets:
        with suppress(OSError, UnicodeDecodeError):  # as for the services, its variables are then not set
            variables = read_env_file(config_dir)
    command = [sys.executable, "-m", "services.config_check", str(config_dir), *(["--secrets"] if secrets else [])]
    sys.exit(subprocess.run(command, check=False, env=variables | os.environ).returncode)
