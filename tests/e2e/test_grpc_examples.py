"""The commands of docs/grpc.md as they stand there, with the real grpcurl and buf."""

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
SHOWN = {
    " list": r"^headrace\.v1\.AgentService$",
    " describe ": r"rpc Query \( \.headrace\.v1\.QueryRequest \) returns \( stream \.headrace\.v1\.AgentDelta \)",
    "/ListAgents": r'"key": ?"assistant"',
    "/Query": r'"run_?[cC]omplete": ?{',
    "/Check": r'"status": ?"SERVING"',
}
"""What its output must match. grpcurl writes fields as the protos do, buf as JSON does."""

BUILD_TIMEOUT_S = 1200.0
"""grpcurl is compiled where it never was."""

needs_go = pytest.mark.skipif(shutil.which("go") is None, reason="NOTICE: Go is not installed: grpcurl is not tried")


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(line, marks=[needs_go, pytest.mark.nightly] if line.startswith("grpcurl ") else ())
        for line in COMMANDS
    ],
)
async def test_the_command_shows_what_it_is_for(demo: Running, command: str) -> None:
    program, *words = shlex.split(command.replace("127.0.0.1:7001", demo.grpc))
    start = ["go", "tool", "grpcurl"] if program == "grpcurl" else [str(Path(sys.executable).with_name(program))]
    code, said, _ = await run_to_end(*start, *words, cwd=GRPCURL, stderr=STDOUT, timeout_s=BUILD_TIMEOUT_S)
    assert code == 0, said.decode()
    (shown,) = [text for word, text in SHOWN.items() if word in command]
    assert re.search(shown, said.decode(), re.MULTILINE), said.decode()
