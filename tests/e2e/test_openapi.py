"""The suite answers as its OpenAPI document says, whatever it is asked: schemathesis asks, and `python -m trials fuzz`
asks more.

Its phase `coverage`, which tries each bound of each field, takes minutes.
"""

import asyncio
import sys
from pathlib import Path

import pytest

from tests.support.suite import Suite

pytestmark = pytest.mark.asyncio(loop_scope="session")

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
TIMEOUT_S = 600.0
"""A few examples alone take seconds."""


async def test_no_request_gets_what_is_not_documented(
    suite: Suite, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    examples, phases = (str(pytestconfig.getoption(name)) for name in ("--http-examples", "--http-phases"))
    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).parent / "st",
        *("run", f"{suite.url}/openapi.json", "--checks", CHECKS, "--phases", phases, "--no-color"),
        *("--max-examples", examples, "--seed", "1", "--generation-database", "none"),
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(TIMEOUT_S):
            told, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, told.decode()[:4000]
