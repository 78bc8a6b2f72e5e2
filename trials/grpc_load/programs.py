"""Third-party programs, built once under build/judges in the versions of go.mod and package.json.

`python -m trials.grpc_load.programs` builds the one needed by tests.
"""

import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.judges.environments import BUILD, ROOT, find_npm_environment, hold_lock

MADE = BUILD / "grpc"
JUDGE = ROOT / "tests" / "judges" / "grpc" / "go"
GHZ = ROOT / "tests" / "clients" / "ghz"
NODE = Path(__file__).parent / "node"

BUILD_TIMEOUT_S = 1200.0
"""Long enough for downloading and compiling."""


def make_judge() -> Path:
    """Return grpc-go's interop client and server, which is also its load client."""
    return _build_go(JUDGE, ".", "judge")


def make_ghz() -> Path:
    return _build_go(GHZ, "github.com/bojand/ghz/cmd/ghz", "ghz")


def make_grpc_js() -> Path:
    """Return the program, copied next to the packages that it imports."""
    program = find_npm_environment("grpc-js", NODE / "package.json") / "grpc_js.mjs"
    shutil.copy(NODE / program.name, program)
    return program


def _build_go(module: Path, package: str, name: str) -> Path:
    program = MADE / name
    MADE.mkdir(parents=True, exist_ok=True)
    with hold_lock(f"grpc-{name}"):
        if not _is_new(program, module.iterdir()):
            made = program.with_suffix(".new")
            _run(["go", "build", "-trimpath", "-buildvcs=false", "-o", str(made), package], module)
            made.replace(program)
    return program


def _is_new(program: Path, sources: Iterable[Path]) -> bool:
    return program.exists() and all(source.stat().st_mtime < program.stat().st_mtime for source in sources)


def _run(command: Sequence[str], folder: Path) -> None:
    env = os.environ | {"CGO_ENABLED": "0"}
    subprocess.run(command, cwd=folder, env=env, check=True, timeout=BUILD_TIMEOUT_S)


if __name__ == "__main__":
    make_judge()  # needed by the check; the trial builds the others
