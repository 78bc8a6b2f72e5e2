"""A2A requests as clients send them."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from headrace.a2a import a2a_pb2_grpc
from services.runtime.rpc.channels import open_channel
from tests.support.facade.scripted import Script, Suite, read_all_frames, suite
from tests.support.timing import within

URL = "/a2a/helper"


def message(*parts: Any, **fields: Any) -> dict[str, Any]:
    return {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [*parts] or [{"text": "hi"}]} | fields}


def rpc(method: str, params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


async def post(facade: Suite, body: Any, path: str = URL, **headers: str) -> tuple[int, Any]:
    async with within(50), facade.http.post(path, json=body, headers=headers) as response:
        return response.status, await response.json()


async def stream(facade: Suite, method: str, params: Any, **headers: str) -> list[Any]:
    async with within(50), facade.http.post(URL, json=rpc(method, params), headers=headers) as response:
        assert response.content_type == "text/event-stream", await response.text()
        return [json.loads(frame.data) for frame in await read_all_frames(response)]


@asynccontextmanager
async def serving(folder: Path, script: Script) -> AsyncGenerator[tuple[Suite, Any]]:
    """Run a facade; yield it with a stub of its gRPC binding, found through the agent card as clients do."""
    async with suite(folder, script) as facade:
        async with facade.http.get("/a2a") as response:
            interfaces = [
                interface for card in (await response.json())["agentCards"] for interface in card["supportedInterfaces"]
            ]
        address = next((interface["url"] for interface in interfaces if interface["protocolBinding"] == "GRPC"), "")
        async with open_channel(address) as channel, within(50):
            yield facade, a2a_pb2_grpc.A2AServiceStub(channel)


def fold(events: list[Any]) -> tuple[str, str]:
    """Return the answer and the state at the end of a stream."""
    text = state = ""
    for event in (frame["result"] for frame in events):
        if update := event.get("artifactUpdate"):
            piece = update["artifact"]["parts"][0]["text"]
            text = text + piece if update["append"] else piece
        state = (event.get("task") or event.get("statusUpdate") or {"status": {"state": state}})["status"]["state"]
    return text, state
