"""Environments of outside judges: build/judges/NAME has what environments/NAME.txt lists, and nothing of ours.

They are made when they are first needed: a judge that is not there would be a test that is left out unseen.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "build" / "judges"
LISTS = Path(__file__).with_name("environments")
PROGRAMS = Path(__file__).with_name("programs")


def make_environment(name: str) -> Path:
    """Install the list's packages unless they are there; return the environment's Python."""
    wanted, folder = (LISTS / f"{name}.txt").read_text(), FOLDER / name
    python, done = folder / "bin" / "python", folder / "installed.txt"
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / f"{name}.lock").open("w") as lock:  # tests run in several processes
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists() or done.read_text() != wanted:
            _run_uv("venv", "--quiet", "--clear", "--python", sys.executable, str(folder))
            # The lists have all packages, so there is nothing to resolve.
            _run_uv("pip", "install", "--quiet", "--no-deps", "--python", str(python), "-r", str(LISTS / f"{name}.txt"))
            done.write_text(wanted)
    return python


def _run_uv(*arguments: str) -> None:
    beside = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    uv = shutil.which("uv", path=beside)
    assert uv is not None, "uv is not installed: `pip install uv`"
    subprocess.run([uv, *arguments], check=True)
