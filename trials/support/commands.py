"""How trials run commands: of the checkout, each printed before it runs."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]

NOT_TRIED = 69
"""The exit code of a trial that could not say anything (EX_UNAVAILABLE)."""


class NotTried(Exception):
    """Says what is missing; neither a success nor a failure of what was to be tried."""


def run(*command: str | Path, **variables: str) -> int:
    """Run the command; return its exit code."""
    words = [str(word) for word in command]
    settings = "".join(f"{name}={shlex.quote(value)} " for name, value in variables.items())
    print(f"$ {settings}{shlex.join(words)}", flush=True)
    return subprocess.run(words, cwd=ROOT, env=os.environ | variables, check=False).returncode


def run_python(*arguments: str | Path, **variables: str) -> int:
    return run(sys.executable, "-m", *arguments, **variables)


def run_checks(*files: Path) -> int:
    """Run the checks of a trial, which are no part of the tests: files of pytest that are named check_*.py."""
    return run_python("pytest", "-q", "-p", "no:cacheprovider", *sorted(files))


def worst(codes: Iterable[int]) -> int:
    """Return 1 if one of them is not 0; all commands are run before that."""
    return int(sum(code != 0 for code in codes) > 0)


def make(*targets: str) -> None:
    """Make files of the Makefile, as environments of clients."""
    if run("make", "--no-print-directory", *targets) != 0:
        raise NotTried(f"cannot make {' '.join(targets)}")


def install(*requirements: str, into: Path | None = None) -> Path:
    """Install packages into the environment, which is made anew if it is not there; return its Python.

    Without `into` it is the one of the tests, whose constraints hold.
    """
    python = into / "bin" / "python" if into else Path(sys.executable)
    if into and not python.exists():
        run("packaging/uv", "venv", "--quiet", "--clear", "--python", sys.executable, into)
    pins = [] if into else ["-c", "constraints.txt"]
    if run("packaging/uv", "pip", "install", "--quiet", "--python", python, *pins, *requirements) != 0:
        raise NotTried(f"cannot install {' '.join(requirements)}")
    return python


def need(*programs: str) -> None:
    if missing := [program for program in programs if shutil.which(program) is None]:
        raise NotTried(f"not here: {', '.join(missing)}")
