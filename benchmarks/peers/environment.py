"""Installs or builds each peer on first use, in the user's cache."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path

INSTALL_TIMEOUT_S = 900.0
"""Long, because LiteLLM downloads about 750 MB."""


class Unavailable(Exception):
    """A peer is not available here; the message says why."""


async def install(requirements: Path, version: str) -> Path:
    """Return the `bin` folder of an environment with the packages in `requirements`.

    Raises:
        Unavailable: The environment cannot be created.
    """
    folder = _cache() / f"{requirements.stem}-{version}"
    if not (folder / "done").exists():
        folder.mkdir(parents=True, exist_ok=True)
        await _run(sys.executable, "-m", "venv", str(folder))
        pip = (str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check")
        await _run(*pip, "-r", str(requirements))
        (folder / "done").touch()
    return folder / "bin"


async def build_go(folder: Path) -> Path:
    """Return the program of the Go module in `folder`, built unless nothing changed.

    Raises:
        Unavailable: Go is missing, or cannot build it.
    """
    go = shutil.which("go", path=f"{os.environ['PATH']}:/usr/local/go/bin")
    if go is None:
        raise Unavailable("Go is missing")
    program = _cache() / folder.name
    await _run(go, "build", "-C", str(folder), "-o", str(program), ".")
    return program


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace"


def read_version(requirements: Path, package: str) -> str:
    """Return the pinned version of a package."""
    pins = dict(line.split("==") for line in requirements.read_text().split())
    return pins[package]


async def _run(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    try:
        async with asyncio.timeout(INSTALL_TIMEOUT_S):
            _, output = await process.communicate()
    except TimeoutError as error:
        process.kill()
        await process.wait()
        raise Unavailable(f"not installed within {INSTALL_TIMEOUT_S:.0f} s") from error
    if process.returncode:
        raise Unavailable((output.decode().strip().splitlines() or ["it did not say why"])[-1])
