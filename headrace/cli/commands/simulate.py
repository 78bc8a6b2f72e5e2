"""headrace simulate: a model provider without a model, for demos and tests."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from headrace.cli.supervisor.ports import reserve_port


@click.command()
@click.option("--port", default=7005, show_default=True, type=click.IntRange(0, 65535), help="Port; 0: any free one.")
@click.option("--script", type=click.Path(path_type=Path), help="File with its answers. Default: built-in behaviour.")
def simulate(port: int, script: Path | None) -> None:
    """Serve a simulated model provider (OpenAI protocol)."""
    with reserve_port("--port", port) as free_port:
        command = [sys.executable, "-m", "services.simulator", "--port", str(free_port)]
        if script is not None:
            command += ["--script", str(script)]
        # The process becomes the simulator: signals reach it, and this package imports no server.
        os.execv(sys.executable, command)
