"""headrace replay: replays recorded runs without a network."""

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
    help="Speed, as a multiple of the recorded one. Default: no waits.",
)
@click.option("--stop-at", default=0, metavar="SEQ", type=click.IntRange(0), help="Stop after the event with this seq.")
@click.option("--show", is_flag=True, help="Show each run as it happens, like `headrace ask`.")
@click.option(
    "--run-modes",
    is_flag=True,
    help="Run the code of custom modes in the cassettes, with your privileges and without a sandbox.",
)
@click.argument("cassettes", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
def replay(speed: float, stop_at: int, show: bool, run_modes: bool, cassettes: tuple[Path, ...]) -> None:
    """Replay recorded runs without a network.

    This version's orchestrator runs with the recorded answers of models, tools and people. No key, network, sandbox or
    server is used. Exit codes: 0 every run was reproduced, event by event and byte by byte except for times; 1 a run
    was not, and the first differing line is shown, or why it was not tried; 2 a file is not a cassette.
    """
    options = [f"--speed={speed}", f"--stop-at={stop_at}", *(["--show"] if show else [])]
    options += ["--run-modes"] if run_modes else []
    environment = os.environ | {"HEADRACE_TRANSPORT": "local"}
    # The process becomes the replay, because this package must not import servers.
    os.execve(
        sys.executable, [sys.executable, "-m", "services.replay", *options, "--", *map(str, cassettes)], environment
    )
