"""Open WebUI as its users run it: a server in a process of its own, whose models are our agents.

Its environment omits local embedding and transcription (torch and its dependents), which take gigabytes.
"""

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from headrace.cli.supervisor.ports import reserve_port
from tests.support.clients.catalogue import ENVIRONMENTS, PAGE
from tests.support.clients.programs import Served
from tests.support.programs import starting

pytestmark = pytest.mark.asyncio(loop_scope="session")

READY_TIMEOUT_S = 300.0

SETTINGS = {
    "WEBUI_AUTH": "False",
    "WEBUI_SECRET_KEY": "of a server that lives for one test",
    "ENABLE_OLLAMA_API": "False",
    "ENABLE_VERSION_UPDATE_CHECK": "False",
    "OFFLINE_MODE": "True",
    "RAG_EMBEDDING_ENGINE": "openai",  # Otherwise it loads a model when it starts.
    "OPENAI_API_KEY": "none",
}


@asynccontextmanager
async def open_webui(served: Served, data_dir: Path) -> AsyncGenerator[aiohttp.ClientSession]:
    """A signed-in user of a running server."""
    program = ENVIRONMENTS / "open_webui" / "bin" / "open-webui"
    settings = SETTINGS | {"DATA_DIR": str(data_dir), "OPENAI_API_BASE_URL": f"{served.suite.url}/v1"}
    with reserve_port("open-webui", 0) as port:
        command = (program, "serve", "--host", "127.0.0.1", "--port", str(port))
        async with (
            starting(*command, env=os.environ | settings) as process,
            asyncio.timeout(READY_TIMEOUT_S),
            aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http,
        ):
            while not await is_healthy(http):
                assert process.returncode is None
                await asyncio.sleep(0.5)
            async with http.post("/api/v1/auths/signin", json={"email": "", "password": ""}) as response:
                http.headers["Authorization"] = f"Bearer {(await response.json())['token']}"
            yield http


async def is_healthy(http: aiohttp.ClientSession) -> bool:
    try:
        async with http.get("/health") as response:
            return response.status == 200
    except aiohttp.ClientConnectionError:
        return False


@pytest.mark.nightly
async def test_agents_are_models_of_open_webui(served: Served, tmp_path: Path) -> None:
    if not (ENVIRONMENTS / "open_webui" / "done").exists():
        pytest.skip("build/clients/open_webui is not there: `python -m trials clients` makes it")
    ask: dict[str, Any] = {"model": "words", "messages": [{"role": "user", "content": "Count."}]}
    async with open_webui(served, tmp_path) as http:
        async with http.get("/api/models") as response:
            models = [model["id"] for model in (await response.json())["data"]]
        async with http.post("/api/chat/completions", json=ask) as response:
            whole = await response.json()
        async with http.post("/api/chat/completions", json=ask | {"stream": True}) as response:
            lines = [line async for line in response.content]
        async with http.get("/api/version") as response:
            version = (await response.json())["version"]
    assert {"schemas", "words"} <= set(models)
    assert whole["choices"][0]["message"]["content"] == "one two three"
    chunks = [json.loads(line[6:]) for line in lines if line.startswith(b"data: {")]
    pieces = [chunk["choices"][0]["delta"].get("content") for chunk in chunks if chunk.get("choices")]
    assert "".join(piece or "" for piece in pieces) == "one two three"
    assert f"| Open WebUI | {version} | " in PAGE.read_text()
