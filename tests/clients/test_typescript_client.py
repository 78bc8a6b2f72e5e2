"""@headrace/client: the package as npm packs it, in a project that has nothing else, in Node and in Chromium."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.clients.catalogue import ROOT
from tests.clients.test_grpc import get_environment

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(
        shutil.which("npm") is None, reason="NOTICE: Node is not installed: @headrace/client is NOT built or tried"
    ),
]

CONSOLE = ROOT / "services" / "facade" / "console" / "static" / "client"


async def test_the_console_has_the_files_that_the_package_is_built_to() -> None:
    built: Path = get_environment("headrace") / "package" / "dist"
    for file in CONSOLE.iterdir():
        assert file.read_text() == (built / file.name).read_text(), "`make typescript-client` writes them"
