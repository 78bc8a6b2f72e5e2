"""Runs commands of trials in the checkout; each is printed before it runs."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]

NOT_TRIED = 69
"""Exit code of a trial without a result (EX_UNAVAILABLE)."""


class NotTried(Exception):
    """Names a missing prerequisite; the trial has neither succeeded nor failed."""


def run(*command: str | Path, **variables: str) -> int:
    """Run the command; return its exit code."""
    words = [str(word) for word in command]
    settings = "".join(f"{name}={shlex.quote(value)} " for name, value in variables.items())
    print(f"$ {settings}{shlex.join(words)}", flush=True)
    return subprocess.run(words, cwd=ROOT, env=os.environ | variables, check=False).returncode


def run_python(*arguments: str | Path, **variables: str) -> int:
    return run(sys.executable, "-m", *arguments, **variables)


def run_checks(*files: Path) -> int:
    """Run the checks of a trial, which are not part of the tests: pytest files named check_*.py."""
    return run_python("pytest", "-q", "-p", "no:cacheprovider", *sorted(files))


def worst(codes: Iterable[int]) -> int:
    """Return 1 if one of the codes is not 0; all commands run first."""
    return int(sum(code != 0 for code in codes) > 0)


def make(*targets: str) -> None:
    """Build targets of the Makefile, such as environments of clients."""
    if run("make", "--no-print-directory", *targets) != 0:
        raise NotTried(f"cannot make {' '.join(targets)}")


def install(*requirements: str, into: Path | None = None) -> Path:
    """Install packages into the environment, which is created if it is missing; return its Python.

    Without `into`, it is the environment of the tests, with its constraints.
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
