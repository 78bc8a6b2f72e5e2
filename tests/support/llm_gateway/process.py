"""The gateway as a separate process, to observe its log lines and its memory from outside."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from headrace.v1 import llm_pb2_grpc
from services.runtime.rpc.channels import open_channel

START_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class GatewayProcess:
    """A running process and its stub."""

    llm: llm_pb2_grpc.LlmServiceAsyncStub
    pid: int
    stderr: Path
    """Every line it has logged so far."""

    @property
    def rss_bytes(self) -> int:
        """Resident memory now."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


@asynccontextmanager
async def gateway_process(folder: Path, *entries: dict[str, Any], **env: str) -> AsyncGenerator[GatewayProcess]:
    """`python -m services.llm_gateway` inside the block, with these entries of a provider file."""
    (folder / "providers.json").write_bytes(orjson.dumps({"providers": entries}))
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    given = {"HEADRACE_LLM_GATEWAY_LISTEN": "127.0.0.1:0", "HEADRACE_CONFIG_DIR": str(folder), "HEADRACE_DRAIN_S": "0"}
    stderr = folder / "stderr"
    command = (sys.executable, "-m", "services.llm_gateway")
    with stderr.open("wb") as lines:
        process = await asyncio.create_subprocess_exec(*command, env=inherited | given | env, stderr=lines)
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            address = await _address(stderr, process)
        async with open_channel(address) as channel:
            yield GatewayProcess(llm_pb2_grpc.LlmServiceStub(channel), process.pid, stderr)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _address(stderr: Path, process: asyncio.subprocess.Process) -> str:
    while (serving := _line(stderr, b'"serving"')) is None:
        assert process.returncode is None, "the gateway ended before it served"
        await asyncio.sleep(0.05)
    return orjson.loads(serving)["addresses"][0]


def _line(stderr: Path, mark: bytes) -> bytes | None:
    # Only what ends is a whole line; the process may be writing.
    return next((line for line in stderr.read_bytes().split(b"\n")[:-1] if mark in line), None)
