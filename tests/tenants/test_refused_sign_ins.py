"""Whom a service refuses that people call is in memory's audit log, once the service has told it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from headrace.client import Client
from headrace.errors import Unauthenticated
from tests.tenants.house import TIMEOUT_S, house


async def test_each_service_that_people_call_tells_whom_it_has_refused(tmp_path: Path) -> None:
    async with asyncio.timeout(TIMEOUT_S), house(tmp_path) as it:
        agents, memory, tools = (it.addresses[name] for name in ("AgentService", "MemoryService", "ToolService"))
        async with Client(agents, memory_address=memory, tools_address=tools, token="of nobody") as stranger:
            for ask in (stranger.agents, lambda: stranger.upload("a.txt", b"a")):
                with pytest.raises(Unauthenticated):
                    await ask()
        async with it.http.get(f"{it.url}/api/chats", headers={"x-api-key": "of nobody"}) as response:
            assert response.status == 401
    files = sorted((tmp_path / "data" / "chats" / "audit").rglob("*.jsonl"))
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    told = [line for line in lines if line["event"] == "sign_in.refused"]
    assert sorted((line["service"], line["address"], line["count"]) for line in told) == [
        (name, "127.0.0.1", 1) for name in ("facade", "orchestrator", "tools")
    ]
