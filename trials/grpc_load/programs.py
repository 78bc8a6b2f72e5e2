"""Others' programs, made once under build/judges/grpc at the versions that go.mod and package.json name.

`python -m trials.grpc_load.programs` makes the one that tests need.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
MADE = ROOT / "build" / "judges" / "grpc"
JUDGE = ROOT / "tests" / "judges" / "grpc" / "go"
GHZ = ROOT / "tests" / "clients" / "ghz"
NODE = Path(__file__).parent / "node"

BUILD_TIMEOUT_S = 1200.0
"""They are fetched and compiled where they never were."""


def make_judge() -> Path:
    """Return grpc-go's interop client and server, and its load."""
    return _build_go(JUDGE, ".", "judge")


def make_ghz() -> Path:
    return _build_go(GHZ, "github.com/bojand/ghz/cmd/ghz", "ghz")


def make_grpc_js() -> Path:
    """Return the program, beside the packages that it imports."""
    folder = MADE / "node"
    program = folder / "grpc_js.mjs"
    with _making("node"):
        if not _is_new(program, NODE.iterdir()):
            folder.mkdir(exist_ok=True)
            shutil.copy(NODE / "package.json", folder)
            options = ["--silent", "--no-package-lock", "--no-fund", "--no-audit", "--ignore-scripts"]
            _run(["npm", "install", *options], folder)
            shutil.copy(NODE / program.name, program)
    return program


def _build_go(module: Path, package: str, name: str) -> Path:
    program = MADE / name
    with _making(name):
        if not _is_new(program, module.iterdir()):
            made = program.with_suffix(".new")
            _run(["go", "build", "-trimpath", "-buildvcs=false", "-o", str(made), package], module)
            made.replace(program)
    return program


@contextmanager
def _making(name: str) -> Generator[None]:
    """Let one process at a time make what `name` says."""
    MADE.mkdir(parents=True, exist_ok=True)
    with (MADE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _is_new(program: Path, sources: Iterable[Path]) -> bool:
    return program.exists() and all(source.stat().st_mtime < program.stat().st_mtime for source in sources)


def _run(command: Sequence[str], folder: Path) -> None:
    env = os.environ | {"CGO_ENABLED": "0"}
    subprocess.run(command, cwd=folder, env=env, check=True, timeout=BUILD_TIMEOUT_S)


if __name__ == "__main__":
    make_judge()  # what the check needs; the trial makes the others
