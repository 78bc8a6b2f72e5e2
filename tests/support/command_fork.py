"""What a fork does that is to be headrace: apart from the rest, as the process that is forked imports it."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from headrace.cli import main


def run_command(arguments: tuple[str, ...], environment: Mapping[str, str], cwd: Path, streams: list[Path]) -> None:
    """Take the place of a process that was started with these arguments, its standard streams those files."""
    for number, stream in enumerate(streams):
        os.dup2(os.open(stream, os.O_RDWR | os.O_APPEND), number)
    sys.stdin = os.fdopen(0, closefd=False)  # multiprocessing has closed it
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    main(arguments, prog_name="headrace")
