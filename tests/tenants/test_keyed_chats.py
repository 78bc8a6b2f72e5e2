"""A named thread of a front end is a chat of its user."""

import json
import uuid
from pathlib import Path
from typing import Any

from headrace.v1 import agent_pb2, memory_pb2, tools_pb2
from services.facade.agui.request import find_older_chat_id
from services.runtime.auth.access import find_keyed_chat
from services.runtime.auth.identity import Identity, acting_as
from tests.support.contract import RPCS
from tests.support.tenants.requests import Ids, make_request
from tests.support.tenants.suite import ADA, BOB, KEYS, TenantSuite, serving_tenants

QUERY, CHAT = RPCS["AgentService.Query"], RPCS["MemoryService.GetChat"]


async def send_message(suite: TenantSuite, who: Identity, thread: str, text: str) -> None:
    body = {"threadId": thread, "runId": str(uuid.uuid4()), "messages": [{"id": "1", "role": "user", "content": text}]}
    async with suite.http.post("/agui/plain", json=body, headers={"x-api-key": KEYS[who]}) as answer:
        assert b"RUN_FINISHED" in await answer.read()


async def count_runs(suite: TenantSuite, who: Identity, chat_id: str) -> int:
    found = await suite.call(CHAT, who, [memory_pb2.GetChatRequest(chat_id=chat_id)])
    return sum(event.HasField("run_start") for event in found.reply.events) if found.code == "OK" else 0


async def test_a_named_thread_is_a_chat_of_its_user(tmp_path: Path) -> None:
    async with serving_tenants(tmp_path) as suite:
        for who in (ADA, BOB, ADA):
            await send_message(suite, who, "main", "hello")
        listed = RPCS["MemoryService.ListChats"]
        for who, runs in ((ADA, 2), (BOB, 1)):
            [chat] = (await suite.call(listed, who, [memory_pb2.ListChatsRequest()])).reply.chats
            assert await count_runs(suite, who, chat.chat_id) == runs
            assert chat.chat_id[14] == "8"


async def test_a_thread_with_an_older_chat_id_continues_for_its_user(tmp_path: Path) -> None:
    async with serving_tenants(tmp_path) as suite:
        with acting_as(ADA):
            older = find_older_chat_id("main")
        await suite.call(QUERY, ADA, [agent_pb2.QueryRequest(message="hi", agent_key="plain", chat_id=older)])
        await send_message(suite, ADA, "main", "hello")
        assert await count_runs(suite, ADA, older) == 2


async def test_a_chat_key_with_another_chat_id_is_refused(tmp_path: Path) -> None:
    async with serving_tenants(tmp_path) as suite:
        wrong = agent_pb2.QueryRequest(message="hi", agent_key="plain", chat_key="a", chat_id=str(uuid.uuid4()))
        refused = await suite.call(QUERY, ADA, [wrong])
        assert (refused.reason, "chatKey" in refused.message) == ("INVALID_REQUEST", True)
        taken = agent_pb2.QueryRequest(message="hi", agent_key="plain", chat_id=find_keyed_chat(BOB, "a"))
        refused = await suite.call(QUERY, ADA, [taken])
        assert (refused.reason, "chatId" in json.dumps(refused.message)) == ("INVALID_REQUEST", True)


async def test_uploading_to_another_users_keyed_chat_is_refused(tmp_path: Path) -> None:
    upload, read, execute = (RPCS[f"ToolService.{name}"] for name in ("UploadFile", "ReadFile", "Execute"))

    def attach(**fields: str) -> list[Any]:
        start = tools_pb2.UploadStart(name="mine.txt", size_bytes=5, **fields)
        return [tools_pb2.UploadFileRequest(start=start), tools_pb2.UploadFileRequest(data=b"hello")]

    async with serving_tenants(tmp_path) as suite:
        chat_id = find_keyed_chat(ADA, "a")
        for who, fields, reason in (
            (BOB, {"chat_id": chat_id}, "NOT_FOUND"),
            (BOB, {"chat_id": chat_id, "chat_key": "a"}, "INVALID_REQUEST"),
            (ADA, {"chat_id": chat_id}, "NOT_FOUND"),
            (ADA, {"chat_id": chat_id, "chat_key": "b"}, "INVALID_REQUEST"),
        ):
            assert (await suite.call(upload, who, attach(**fields))).reason == reason
        first = await suite.call(upload, ADA, attach(chat_key="a"))
        assert (first.reply.chat_id, first.reply.reference.name) == (chat_id, "mine.txt")
        reference = first.reply.reference
        query = agent_pb2.QueryRequest(message="hi", agent_key="plain", chat_key="a", references=[reference])
        events = (await suite.call(QUERY, ADA, [query])).reply
        ids = Ids(chat_id, next(event.run_start.run_id for event in events if event.HasField("run_start")))
        file = await suite.call(read, ADA, [tools_pb2.ReadFileRequest(chat_id=chat_id, path="uploads/mine.txt")])
        assert (file.code, file.reply[-1].data) == ("OK", b"hello")
        for who, code in ((ADA, "OK"), (BOB, "NOT_FOUND")):
            for rpc in (execute, upload, read):
                result = await suite.call(rpc, who, make_request(f"ToolService.{rpc.name}", ids))
                assert result.code == code, (who.user, rpc.name, result)
