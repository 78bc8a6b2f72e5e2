"""A gRPC client that knows nothing of us: buf, by reflection alone."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from tests.support.suite import Suite

pytestmark = pytest.mark.asyncio(loop_scope="session")

BUF = Path(sys.executable).with_name("buf")


async def test_buf_is_told_what_is_wrong(suite: Suite) -> None:
    request = json.dumps({"message": "go", "agentKey": "nobody"})
    process = await asyncio.create_subprocess_exec(
        *(BUF, "curl", "--protocol", "grpc", "--http2-prior-knowledge", "--data", request),
        f"http://{suite.grpc}/headrace.v1.AgentService/Query",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(200):
        _, complaint = await process.communicate()
    assert process.returncode != 0
    error = json.loads(complaint)
    assert error["code"] == "not_found"
    assert error["message"].startswith("no agent has the key 'nobody'; known keys:")
    assert error["details"][0]["type"] == "google.rpc.ErrorInfo"
