"""Refused credentials at public services are recorded in memory's audit log."""

import asyncio
import json
from pathlib import Path

import aiohttp
import pytest

from headrace.errors import Unauthenticated
from headrace.streams import rpc_errors
from headrace.v1 import llm_pb2
from headrace.v1.llm_pb2_grpc import LlmServiceStub
from services.llm_gateway.config import Config
from services.llm_gateway.server import gateway as llm_gateway
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.channels import open_channel
from tests.support.facade.fronts import PEERS, Timing, gateway
from tests.support.tenants.suite import TIMEOUT_S, serving_tenants

STRANGER = {"x-api-key": "of nobody"}


async def test_each_public_service_records_refused_credentials(tmp_path: Path) -> None:
    async with asyncio.timeout(TIMEOUT_S), serving_tenants(tmp_path) as suite:
        async with suite.connect("of nobody") as stranger:
            for ask in (stranger.agents, lambda: stranger.upload("a.txt", b"a")):
                with pytest.raises(Unauthenticated):
                    await ask()
        async with suite.http.get(f"{suite.url}/api/chats", headers=STRANGER) as response:
            assert response.status == 401
    assert read_refused(tmp_path) == [(name, "127.0.0.1", 1) for name in ("facade", "orchestrator", "tools")]


async def test_the_llm_gateway_records_refused_credentials_if_it_knows_memory(tmp_path: Path) -> None:
    async with asyncio.timeout(TIMEOUT_S), serving_tenants(tmp_path) as suite:
        server = ServerSettings(listen="127.0.0.1:0", drain_s=0, auth=suite.settings)
        config = Config(server=server, config_dir=tmp_path, memory_address=suite.addresses["memory"])
        async with llm_gateway(config, {}) as running, open_channel(running.addresses[0]) as channel:
            with pytest.raises(Unauthenticated), rpc_errors():
                await LlmServiceStub(channel).ListModels(llm_pb2.ListModelsRequest(), metadata=tuple(STRANGER.items()))
    assert read_refused(tmp_path) == [("llm_gateway", "127.0.0.1", 1)]


async def test_behind_the_go_gateway_the_clients_address_is_recorded(tmp_path: Path) -> None:
    async with asyncio.timeout(TIMEOUT_S), serving_tenants(tmp_path) as suite:
        addresses = {name: suite.addresses[name] for name in PEERS}
        env = {"HEADRACE_INTERNAL_TOKEN": suite.settings.internal_token}
        elsewhere = aiohttp.TCPConnector(local_addr=("127.0.0.2", 0))
        async with gateway(addresses, Timing(), env) as url, aiohttp.ClientSession(connector=elsewhere) as http:
            # A client's own claims about its address are ignored.
            forged = STRANGER | {"x-headrace-client-address": "10.0.0.7", "x-forwarded-for": "10.0.0.7"}
            async with http.get(f"{url}/api/agents", headers=forged) as response:
                assert response.status == 401
    assert read_refused(tmp_path) == [("orchestrator", "127.0.0.2", 1)]


def read_refused(folder: Path) -> list[tuple[str, str, int]]:
    files = sorted((folder / "data" / "chats" / "audit").rglob("*.jsonl"))
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    refused = [line for line in lines if line["event"] == "sign_in.refused"]
    return sorted((line["service"], line["address"], line["count"]) for line in refused)
