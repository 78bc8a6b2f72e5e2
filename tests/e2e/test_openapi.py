"""The suite answers as its OpenAPI document says, whatever it is asked: schemathesis asks, and `python -m trials fuzz`
asks more.

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
"""A few examples alone take seconds; each more of every operation is given its own time, on a busy machine too."""


async def test_no_request_gets_what_is_not_documented(
    suite: Suite, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    examples, phases = (str(pytestconfig.getoption(name)) for name in ("--http-examples", "--http-phases"))
    code, told, _ = await run_to_end(
        Path(sys.executable).parent / "st",
        *("run", f"{suite.url}/openapi.json", "--checks", CHECKS, "--phases", phases, "--no-color"),
        *("--max-examples", examples, "--seed", "1", "--generation-database", "none"),
        cwd=tmp_path,
        stderr=STDOUT,
        timeout_s=TIMEOUT_S + EXAMPLE_S * int(examples),
    )
    assert code == 0, told.decode()[:4000]
