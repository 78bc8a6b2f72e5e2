"""Whatever the request, the suite answers as its OpenAPI document says: schemathesis sends requests here, and
`python -m trials fuzz` sends more.

Its phase `coverage`, which tries each bound of each field, takes minutes.
"""

import sys
from asyncio.subprocess import STDOUT
from pathlib import Path

import pytest

from tests.support.programs import run_to_end
from tests.support.suite import Suite

pytestmark = pytest.mark.asyncio(loop_scope="session")

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
TIMEOUT_S, EXAMPLE_S = 600.0, 30.0
"""Base timeout, and extra time for each example of every operation; a few examples take seconds."""


async def test_every_response_matches_the_openapi_document(
    suite: Suite, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    examples, phases = (str(pytestconfig.getoption(name)) for name in ("--http-examples", "--http-phases"))
    code, output, _ = await run_to_end(
        Path(sys.executable).parent / "st",
        *("run", f"{suite.url}/openapi.json", "--checks", CHECKS, "--phases", phases, "--no-color"),
        *("--max-examples", examples, "--seed", "1", "--generation-database", "none"),
        cwd=tmp_path,
        stderr=STDOUT,
        timeout_s=TIMEOUT_S + EXAMPLE_S * int(examples),
    )
    assert code == 0, output.decode()[:4000]
