"""Reading another user's chat, by any RPC, writes one line an hour to the audit log."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from headrace.cassette.lines import read_cassette
from headrace.client import Client
from headrace.streams import reading, rpc_errors
from headrace.v1 import agent_pb2, memory_pb2, tools_pb2, tools_pb2_grpc
from headrace.v1.agent_pb2_grpc import AgentServiceStub
from headrace.v1.memory_pb2_grpc import MemoryServiceStub
from services.replay.replaying import find_refusal
from services.runtime.rpc.channels import open_channel
from tests.support.tenants.suite import ADA, KEY_OF_OLGA, KEYS, MODEL, TIMEOUT_S, TenantSuite, serving_tenants


async def read_file(suite: TenantSuite, key: str, chat_id: str) -> None:
    async with open_channel(suite.addresses["tools"]) as channel:
        stub: Any = tools_pb2_grpc.ToolServiceStub(channel)
        request = tools_pb2.ReadFileRequest(chat_id=chat_id, path="uploads/notes.txt")
        with rpc_errors():
            async with reading(stub.ReadFile(request, metadata=(("x-api-key", key),))) as pieces:
                assert [piece async for piece in pieces]


async def call_rpc(way: str, suite: TenantSuite, key: str, chat_id: str, run_id: str) -> None:
    service = "orchestrator" if way == "Follow" else "memory"
    requests = {
        "ForkChat": memory_pb2.ForkChatRequest(chat_id=chat_id),
        "Follow": agent_pb2.FollowRequest(chat_id=chat_id),
        "GetChat": memory_pb2.GetChatRequest(run_id=run_id, include_lines=True),
    }
    async with open_channel(suite.addresses[service]) as channel:
        stub: Any = (AgentServiceStub if service == "orchestrator" else MemoryServiceStub)(channel)
        call = getattr(stub, way)(requests[way], metadata=(("x-api-key", key),))
        with rpc_errors():
            if way == "Follow":
                async with reading(call) as items:
                    async for _ in items:
                        break
            else:
                await call


async def read_by(way: str, suite: TenantSuite, client: Client, key: str, chat_id: str, run_id: str) -> None:
    match way:
        case "ReadFile":
            await read_file(suite, key, chat_id)
        case "ForkChat" | "Follow" | "GetChat":
            await call_rpc(way, suite, key, chat_id, run_id)
        case "input_items":
            headers = {"authorization": f"Bearer {key}"}
            async with suite.http.get(
                f"/v1/responses/resp_{run_id.replace('-', '')}/input_items", headers=headers
            ) as response:
                assert response.status == 200, await response.text()
        case _:
            async with client.attach(run_id) as run:
                assert [event async for event in run]


@pytest.mark.parametrize("way", ["ReadFile", "Attach", "ForkChat", "Follow", "GetChat", "input_items"])
async def test_reading_another_users_chat_twice_writes_one_audit_line(way: str, tmp_path: Path) -> None:
    async with asyncio.timeout(TIMEOUT_S), serving_tenants(tmp_path) as suite:
        chat_id, run_id = await suite.ask(ADA, "about the armadillo")
        async with suite.connect(KEYS[ADA]) as ada, suite.connect(KEY_OF_OLGA) as olga:
            await ada.upload("notes.txt", b"hello", chat_id=chat_id)
            await ada.share_chat(chat_id, participants=["user:olga"])
            await read_by(way, suite, ada, KEYS[ADA], chat_id, run_id)
            for _ in range(2):
                await read_by(way, suite, olga, KEY_OF_OLGA, chat_id, run_id)
            lines = [json.loads(line.line) for line in (await ada.audit("content.read")).lines]
    assert [(line["by"], line["of"], line["chatId"]) for line in lines] == [("olga", "ada", chat_id)]


async def test_a_participant_reading_their_own_run_writes_no_audit_line(tmp_path: Path) -> None:
    async with asyncio.timeout(TIMEOUT_S), serving_tenants(tmp_path) as suite:
        chat_id, _ = await suite.ask(ADA, "about the armadillo")
        async with suite.connect(KEYS[ADA]) as ada, suite.connect(KEY_OF_OLGA) as olga:
            await ada.share_chat(chat_id, participants=["user:olga"])
            async with olga.ask("Go on", chat_id=chat_id, agent_key="plain") as run:
                events = [event async for event in run]
            run_id = next(event.run_start.run_id for event in events if event.HasField("run_start"))
            await call_rpc("GetChat", suite, KEY_OF_OLGA, chat_id, run_id)
            assert (await ada.audit("content.read")).lines == []


MODE = "async def run(mode):\n    # how we price it\n    return None if await mode.answer('Now answer.') else ''\n"
AGENT = {"mode": "CUSTOM", "modelConfig": MODEL, "custom": {"mode": "own", "systemPrompt": "You work."}}


@pytest.mark.parametrize("is_operator", [False, True])
async def test_a_cassette_has_the_operators_files_only_for_operators(tmp_path: Path, *, is_operator: bool) -> None:
    for part in ("modes", "agents"):
        (tmp_path / part).mkdir()
    (tmp_path / "modes" / "own.py").write_text(MODE)
    (tmp_path / "agents" / "own.json").write_text(json.dumps(AGENT))
    (tmp_path / "approvals.yaml").write_text("risks: {high: [mill-secret]}\n")
    async with serving_tenants(tmp_path) as suite:
        key = await suite.make_key("of the test", "cat", scopes=["ask", "operate"] if is_operator else ["ask"])
        async with suite.connect(key.secret) as cat:
            async with cat.ask("hello", agent_key="own", record=True) as run:
                run_id = [event async for event in run][-1].run_complete.run_id
            lines = await cat.cassette(run_id)
    cassette = read_cassette(lines)
    assert cassette.query["message"] == "hello"
    assert cassette.events[-1]["type"] == "run.complete"
    operator_texts = [text for text in ("how we price it", "mill-secret", "systemPrompt") if text in "".join(lines)]
    assert len(operator_texts) == (3 if is_operator else 0)
    assert (cassette.modes["own"].is_whole, bool(cassette.withheld)) == (is_operator, not is_operator)
    assert ("withheld" in find_refusal(cassette, runs_modes=True)) == (not is_operator)
