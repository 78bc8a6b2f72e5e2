"""Turns a forked process into `python -m MODULE`. A separate module, because the process that forks imports it."""

import os
import runpy
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def become_program(
    module: str, arguments: Sequence[str], environment: Mapping[str, str], cwd: Path, streams: Sequence[Path]
) -> None:
    """Run the module as a process started with these arguments, with the files as its standard streams."""
    for number, stream in enumerate(streams):
        os.dup2(os.open(stream, os.O_RDWR | os.O_APPEND), number)
    sys.stdin = os.fdopen(0, closefd=False)  # multiprocessing has closed it
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    os.execv = _execute
    _run_module(module, arguments)


def _execute(_python: Any, command: Any) -> Any:
    """Run what a command such as `headrace chats` executes, Python with another module, in this process."""
    _run_module(command[2], command[3:])


def _run_module(module: str, arguments: Sequence[str]) -> None:
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
