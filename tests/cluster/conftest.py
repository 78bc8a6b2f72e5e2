"""One cluster per test, with an agent whose tool must not run twice."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from services.simulator.script import parse_script
from trials.chaos.asking import Asker
from trials.chaos.cluster import Cluster, running
from trials.chaos.harms import Up

COMMAND = ["sh", "-c", "mkdir -p outputs; echo x >> outputs/count; sleep 0.2; echo done"]
MODEL = {"providerKey": "sim", "model": "sim-1"}

SCRIPT: list[dict[str, Any]] = [
    {
        "match": {"turn": 1, "text": "^go"},
        "steps": [
            {"content": ["Let me ", "see. "]},
            {"waitMs": 200},
            {"content": ["I will ", "count."]},
            {"toolCall": "count", "id": "call_1", "arguments": ["{}"]},
        ],
    },
    {"match": {"text": "^go"}, "steps": [{"content": ["It "]}, {"waitMs": 300}, {"content": ["is ", "done."]}]},
    {"match": {"text": "^slow"}, "steps": [{"content": "It "}, {"waitMs": 100}] * 30},
    {"steps": [{"content": "fine"}]},
]


@pytest.fixture
def start_cluster(tmp_path: Path) -> Up:
    """Return a function that runs a cluster, and yields it with a client that sends queries."""

    @asynccontextmanager
    async def start() -> AsyncGenerator[tuple[Cluster, Asker]]:
        config = tmp_path / "config"
        for folder in (config / "agents", config / "tools", tmp_path / "data", tmp_path / "logs"):
            folder.mkdir(parents=True)
        schema = {"type": "object", "properties": {}}
        tool = {"type": "function", "name": "count", "description": "Counts", "parameters": schema}
        (config / "tools" / "count.backend").write_text(
            json.dumps({"tools": [tool | {"command": COMMAND, "effect": "once"}]})
        )
        agent = {"mode": "REACT", "modelConfig": MODEL, "toolConfig": {"backends": ["count"]}, "react": {}}
        (config / "agents" / "counter.json").write_text(json.dumps(agent))
        timeout = aiohttp.ClientTimeout(total=60, sock_read=40)
        async with (
            running(config, tmp_path / "data", tmp_path / "logs") as cluster,
            aiohttp.ClientSession(timeout=timeout) as http,
        ):
            cluster.simulator.rules = parse_script(SCRIPT)
            yield cluster, Asker(http, cluster.urls)

    return start
