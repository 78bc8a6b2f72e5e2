"""A gRPC client that knows nothing of us: buf, by reflection alone."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.suite import Suite

pytestmark = pytest.mark.asyncio(loop_scope="session")

BUF = Path(sys.executable).with_name("buf")


async def test_buf_lists_the_agents(suite: Suite) -> None:
    code, (answer,), _ = await curl(suite, "ListAgents", {"tag": "weather"})
    assert code == 0
    assert "react" in [agent["key"] for agent in answer["agents"]]


async def test_buf_streams_a_run(suite: Suite) -> None:
    pieces = ["one ", "two ", "\n\n"]
    suite.play({"steps": [{"content": pieces}]})
    code, events, _ = await curl(suite, "Query", {"message": "go", "agentKey": "plain"})
    assert code == 0
    assert [event["contentDelta"]["delta"] for event in events if "contentDelta" in event] == pieces
    assert events[-1]["runComplete"]["finishReason"] == "stop"
    assert [int(event["seq"]) for event in events] == list(range(1, len(events) + 1))


async def test_buf_is_told_what_is_wrong(suite: Suite) -> None:
    code, _, complaint = await curl(suite, "Query", {"message": "go", "agentKey": "nobody"})
    assert code != 0
    error = json.loads(complaint)
    assert error["code"] == "not_found"
    assert error["message"].startswith("no agent has the key 'nobody'; known keys:")
    assert error["details"][0]["type"] == "google.rpc.ErrorInfo"


async def curl(suite: Suite, rpc: str, request: dict[str, Any]) -> tuple[int | None, list[Any], str]:
    """The exit code, the messages received, the complaint."""
    process = await asyncio.create_subprocess_exec(
        *(BUF, "curl", "--protocol", "grpc", "--http2-prior-knowledge", "--data", json.dumps(request)),
        f"http://{suite.grpc}/headrace.v1.AgentService/{rpc}",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(200):
        said, complaint = await process.communicate()
    return process.returncode, _messages(said.decode()), complaint.decode()


def _messages(text: str) -> list[Any]:
    """buf prints one JSON object after another."""
    decoder, messages = json.JSONDecoder(), list[Any]()
    while text := text.lstrip():
        message, end = decoder.raw_decode(text)
        messages.append(message)
        text = text[end:]
    return messages
