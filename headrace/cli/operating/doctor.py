"""headrace doctor: list missing programs and features of this machine, and the consequences."""

from __future__ import annotations

import subprocess
import sys

import click


@click.command()
def doctor() -> None:
    """Show what this machine lacks, and what that costs.

    It examines sandbox, PostgreSQL, browser, extras and ports. `ok` works, `--` costs what the line below says, `!!`
    stops most of the suite; then the exit code is 1. Settings of the environment count, such as HEADRACE_AUTH and
    HEADRACE_DATABASE_URL.
    """
    sys.exit(subprocess.run([sys.executable, "-m", "services.config_check"], check=False).returncode)
