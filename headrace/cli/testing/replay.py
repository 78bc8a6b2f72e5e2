"""headrace replay: recorded runs once more, without a network."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click


@click.command()
@click.option(
    "--speed",
    default=0.0,
    type=click.FloatRange(0),
    help="Pace, as a multiple of the recorded one; without it nothing is waited for.",
)
@click.option("--stop-at", default=0, metavar="SEQ", type=click.IntRange(0), help="Stop after the event of that seq.")
@click.option("--show", is_flag=True, help="Show each run as it comes about, as `headrace ask` does.")
@click.option(
    "--run-modes",
    is_flag=True,
    help="Run the code of an operator's own modes that the cassettes bring, with your rights, outside any sandbox.",
)
@click.argument("cassettes", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
def replay(speed: float, stop_at: int, show: bool, run_modes: bool, cassettes: tuple[Path, ...]) -> None:
    """Replay CASSETTES: this version's orchestrator with what its model, tools and people said then.

    No key, network, sandbox or server is used. Exit codes: 0 every run has come about again, event by event and byte by
    byte, times aside; 1 one has not, and the first line that differs is named, or why it was not tried; 2 a file is no
    cassette.
    """
    options = [f"--speed={speed}", f"--stop-at={stop_at}", *(["--show"] if show else [])]
    options += ["--run-modes"] if run_modes else []
    environment = os.environ | {"HEADRACE_TRANSPORT": "local"}
    # The process becomes the replay: this package imports no server.
    os.execve(
        sys.executable, [sys.executable, "-m", "services.replay", *options, "--", *map(str, cassettes)], environment
    )
