"""Third-party clients as separate programs, and the suite that they call."""

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from services.simulator.server import Simulator
from tests.support.clients.catalogue import ENVIRONMENTS, PAGE, ROOT
from tests.support.programs import run_to_end
from tests.support.suite import Running


@dataclass(frozen=True)
class Served:
    suite: Running
    provider: Simulator


TIMEOUT_S = 1200.0
"""grpcurl is compiled where it never was."""


def find_version(path: Path, before: str) -> str:
    """Return the version that follows the text `before` in a file."""
    match = re.search(rf"{re.escape(before)}v?([\d.]+)", path.read_text())
    assert match is not None, f"{path}: no version behind {before!r}"
    return match[1]


def check_row(client: str, version: str) -> None:
    """Assert that the page names the client with its version."""
    assert any(line.startswith(f"| {client} | {version} | ") for line in PAGE.read_text().splitlines()), (
        client,
        version,
    )


def get_environment(name: str) -> Path:
    folder = ENVIRONMENTS / name
    if not (folder / "done").exists():
        pytest.skip(f"build/clients/{name} is not there: `python -m trials clients` makes it")
    return folder


async def run_program(command: Sequence[str | Path], cwd: Path = ROOT) -> str:
    code, output, complaints = await run_to_end(*command, cwd=cwd, timeout_s=TIMEOUT_S)
    assert code == 0, (output + complaints).decode()
    return output.decode()


PACKAGES = ROOT / "tests/clients/node/package.json"

needs_node = pytest.mark.skipif(shutil.which("npm") is None, reason="NOTICE: Node is not installed: MCP's is not tried")
