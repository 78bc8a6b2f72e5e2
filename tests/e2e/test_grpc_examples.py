"""The commands of docs/grpc.md, run unchanged with the real grpcurl and buf."""

import re
import shlex
import shutil
import sys
from asyncio.subprocess import STDOUT
from pathlib import Path

import pytest

from tests.support.programs import run_to_end
from tests.support.suite import Running

pytestmark = pytest.mark.asyncio(loop_scope="session")

ROOT = Path(__file__).parents[2]
GRPCURL = ROOT / "tests" / "e2e" / "grpcurl"
"""A Go module of its own, which names the version."""

COMMANDS = [
    line
    for block in re.findall(r"^```\n(.*?)^```$", (ROOT / "docs" / "grpc.md").read_text(), re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
]
EXPECTED_OUTPUT = {
    " list": r"^headrace\.v1\.AgentService$",
    " describe ": r"rpc Query \( \.headrace\.v1\.QueryRequest \) returns \( stream \.headrace\.v1\.AgentDelta \)",
    "/ListAgents": r'"key": ?"assistant"',
    "/Query": r'"run_?[cC]omplete": ?{',
    "/Check": r'"status": ?"SERVING"',
}
"""What a command's output must match. grpcurl names fields as in the protos, buf as in JSON."""

BUILD_TIMEOUT_S = 1200.0
"""The first use compiles grpcurl."""

needs_go = pytest.mark.skipif(shutil.which("go") is None, reason="NOTICE: Go is not installed: grpcurl is not tried")


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(line, marks=[needs_go, pytest.mark.nightly] if line.startswith("grpcurl ") else ())
        for line in COMMANDS
    ],
)
async def test_a_documented_grpc_command_prints_the_expected_output(demo: Running, command: str) -> None:
    program, *words = shlex.split(command.replace("127.0.0.1:7001", demo.grpc))
    start = ["go", "tool", "grpcurl"] if program == "grpcurl" else [str(Path(sys.executable).with_name(program))]
    code, output, _ = await run_to_end(*start, *words, cwd=GRPCURL, stderr=STDOUT, timeout_s=BUILD_TIMEOUT_S)
    assert code == 0, output.decode()
    (pattern,) = [text for word, text in EXPECTED_OUTPUT.items() if word in command]
    assert re.search(pattern, output.decode(), re.MULTILINE), output.decode()
