"""Authentication at the facade: which paths need a credential, and how requests are refused."""

import asyncio
import json
import os
import sys
import uuid
from asyncio.subprocess import STDOUT
from collections.abc import AsyncGenerator
from typing import Any

import grpc
import pytest
import pytest_asyncio
from google.protobuf.message_factory import GetMessageClass

from headrace.a2a import a2a_pb2, a2a_pb2_grpc
from services.facade.a2a.operations import STREAMING
from services.facade.middleware.credentials import GUARDED
from services.facade.proto_routes import load_routes
from services.runtime.auth.identity import Identity
from services.runtime.rpc.channels import open_channel
from tests.support.programs import run_to_end
from tests.support.raw_http import sending
from tests.support.tenants.suite import ADA, BOB, KEYS, TenantSuite, serving_tenants

A2A = a2a_pb2.DESCRIPTOR.services_by_name["A2AService"]

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def suite(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TenantSuite]:
    async with serving_tenants(tmp_path_factory.mktemp("http")) as found:
        yield found


async def test_every_route_of_the_contract_is_guarded() -> None:
    unguarded = [route.path for route in load_routes() if not route.path.startswith(GUARDED)]
    assert unguarded == ["/hooks/{schedule_id}"]  # Authenticated by the signature of the posted body.


@pytest.mark.parametrize("path", ["/", "/console/main.js", "/healthz", "/readyz", "/openapi.json"])
async def test_public_paths_need_no_credential(path: str, suite: TenantSuite) -> None:
    async with suite.http.get(path) as response:
        assert response.status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/api/agents",
        "/v1/models",
        "/api/nothing",
        "/v1/nothing",
        "/api//agents",
        "/agui/plain",
        "/mcp",
        "/a2a/plain/tasks",
    ],
)
async def test_all_other_paths_need_a_credential(path: str, suite: TenantSuite) -> None:
    async with suite.http.get(path) as response:
        assert (response.status, response.headers["WWW-Authenticate"]) == (401, "Bearer")
        error = (await response.json())["error"]
        assert error["code"] == ("invalid_api_key" if path.startswith("/v1/") else "UNAUTHENTICATED")


@pytest.mark.parametrize("path", ["/API/agents", "//api/agents", "/x/../api/agents", "/%61pi/agents", "/./v1/models"])
async def test_no_spelling_of_a_path_bypasses_authentication(path: str, suite: TenantSuite) -> None:
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
    async with asyncio.timeout(50), sending(suite.url, request) as reader:
        answer = await reader.read()
    assert answer.split(b" ")[1] in (b"401", b"404")


async def test_two_authorization_headers_are_refused(suite: TenantSuite) -> None:
    headers = [("Authorization", f"Bearer {KEYS[ADA]}"), ("Authorization", f"Bearer {KEYS[BOB]}")]
    async with suite.http.get("/api/agents", headers=headers) as response:
        assert response.status == 400


async def test_an_ag_ui_thread_belongs_to_its_caller(suite: TenantSuite) -> None:
    async def run(who: Identity, thread: str) -> tuple[int, str]:
        body = {"threadId": thread, "runId": "r", "messages": [{"id": "u", "role": "user", "content": "hello"}]}
        async with suite.http.post("/agui/plain", json=body, headers={"X-API-Key": KEYS[who]}) as response:
            return response.status, await response.text()

    async def count_chats(who: Identity) -> int:
        async with suite.http.get("/api/chats", headers={"X-API-Key": KEYS[who]}) as response:
            return len((await response.json())["data"])

    before = await count_chats(ADA), await count_chats(BOB)
    for who in (ADA, BOB):  # The same thread and run ids are two runs of two tenants.
        status, text = await run(who, "a thread")
        assert (status, text.count("RUN_FINISHED"), "a thread" in text) == (200, 1, True)
    assert (await count_chats(ADA), await count_chats(BOB)) == (before[0] + 1, before[1] + 1)
    thread = str(uuid.uuid4())
    assert (await run(ADA, thread))[0] == 200
    assert (await run(BOB, thread))[0] == 404


async def test_a2a_tasks_and_mcp_resources_are_visible_only_to_their_tenant(suite: TenantSuite) -> None:
    async def ask(who: Identity, path: str, method: str, **params: Any) -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        async with suite.http.post(path, json=body, headers={"X-API-Key": KEYS[who]}) as response:
            return await response.json()

    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    task = (await ask(ADA, "/a2a/plain", "SendMessage", message=message))["result"]["task"]
    assert (await ask(ADA, "/a2a/plain", "GetTask", id=task["id"]))["result"]["artifacts"] == task["artifacts"]
    tasks_again = [
        (await ask(who, "/a2a/plain", "SendMessage", message=message))["result"]["task"] for who in (ADA, BOB)
    ]
    assert tasks_again[0]["id"] == task["id"], "a repeated message is one task"
    assert tasks_again[1]["id"] != task["id"], "each user has a task of their own"
    for method, params in (
        ("GetTask", {"id": task["id"]}),
        ("CancelTask", {"id": task["id"]}),
        ("SubscribeToTask", {"id": task["id"]}),
        ("SendMessage", {"message": message | {"contextId": task["contextId"]}}),
        ("SendMessage", {"message": message | {"taskId": task["id"]}}),
    ):
        assert (await ask(BOB, "/a2a/plain", method, **params))["error"]["code"] == -32001, method
    listed = await ask(BOB, "/a2a/plain", "ListTasks", contextId=task["contextId"])
    assert listed == await ask(BOB, "/a2a/plain", "ListTasks", contextId="nobody's")
    assert listed["result"]["tasks"] == []
    uri = f"headrace://chats/{task['contextId']}"
    listed = [(await ask(who, "/mcp", "resources/list"))["result"]["resources"] for who in (ADA, BOB)]
    assert [uri in [resource["uri"] for resource in found] for found in listed] == [True, False]
    assert "result" in await ask(ADA, "/mcp", "resources/read", uri=uri)
    for path in (uri, f"{uri}/files/notes.md"):
        assert (await ask(BOB, "/mcp", "resources/read", uri=path))["error"]["code"] == -32002


async def test_mcp_tasks_are_visible_only_to_their_tenant(suite: TenantSuite) -> None:
    async def ask(who: Identity, method: str, **params: Any) -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        async with suite.http.post("/mcp", json=body, headers={"X-API-Key": KEYS[who]}) as response:
            if response.content_type == "text/event-stream":
                return json.loads((await response.text()).rpartition("data: ")[2])
            return await response.json()

    created = await ask(ADA, "tools/call", name="plain", arguments={"message": "hello"}, task={})
    task_id = created["result"]["task"]["taskId"]
    related = (await ask(ADA, "tasks/result", taskId=task_id))["result"]
    assert (related["isError"], related["structuredContent"]["runId"]) == (False, task_id)
    for method in ("tasks/get", "tasks/result", "tasks/cancel"):
        assert (await ask(BOB, method, taskId=task_id))["error"]["code"] == -32602, method
    listed = [(await ask(who, "tasks/list"))["result"]["tasks"] for who in (ADA, BOB)]
    assert [task_id in [task["taskId"] for task in tasks] for tasks in listed] == [True, False]


async def test_a2a_tasks_over_grpc_need_their_tenants_credential(suite: TenantSuite) -> None:
    async with suite.http.get("/a2a/plain/.well-known/agent-card.json", headers={"X-API-Key": KEYS[ADA]}) as response:
        found = next(
            interface
            for interface in (await response.json())["supportedInterfaces"]
            if interface["protocolBinding"] == "GRPC"
        )
    message = a2a_pb2.Message(message_id="g", role=a2a_pb2.ROLE_USER, parts=[a2a_pb2.Part(text="hello")])
    send_request = a2a_pb2.SendMessageRequest(tenant="plain", message=message)
    async with open_channel(found["url"]) as channel:
        agent: Any = a2a_pb2_grpc.A2AServiceStub(channel)
        task = (await agent.SendMessage(send_request, metadata=[("x-api-key", KEYS[ADA])])).task
        assert task.status.state == a2a_pb2.TASK_STATE_COMPLETED
        requests: dict[str, Any] = {rpc.name: GetMessageClass(rpc.input_type)(tenant="plain") for rpc in A2A.methods}
        for name in requests:
            if "Push" in name:
                requests[name].task_id = task.id
        for name in ("GetTask", "CancelTask", "SubscribeToTask"):
            requests[name] = type(requests[name])(tenant="plain", id=task.id)
        bobs = a2a_pb2.ListTasksRequest(tenant="plain", context_id=task.context_id)
        assert not (await agent.ListTasks(bobs, metadata=[("x-api-key", KEYS[BOB])])).tasks
        for name in ("SendMessage", "SendStreamingMessage"):
            requests[name] = a2a_pb2.SendMessageRequest(tenant="plain", message=message)
            requests[name].message.task_id = task.id
        for metadata, code in (((), "UNAUTHENTICATED"), ([("x-api-key", KEYS[BOB])], "NOT_FOUND")):
            for name, request in requests.items():
                if metadata and name == "ListTasks":
                    continue
                call = getattr(agent, name)(request, metadata=metadata)
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await (call.read() if name in STREAMING else call)
                is_refused = bool(metadata) and name == "GetExtendedAgentCard"
                assert caught.value.code().name in {"FAILED_PRECONDITION" if is_refused else code}, name
        refused = agent.GetTask(
            a2a_pb2.GetTaskRequest(tenant="unpublished", id=task.id), metadata=[("x-api-key", KEYS[ADA])]
        )
        with pytest.raises(grpc.aio.AioRpcError, match="no agent 'unpublished' is published here"):
            await refused


async def test_the_command_line_sends_its_token(suite: TenantSuite) -> None:
    async def agents(**environment: str) -> tuple[int | None, str]:
        command = (sys.executable, "-m", "headrace.cli", "agents", "list", "--url", suite.url)
        process_environment = {
            name: value for name, value in os.environ.items() if name != "HEADRACE_TOKEN"
        } | environment
        code, output, _ = await run_to_end(*command, env=process_environment, stderr=STDOUT)
        return code, output.decode()

    code, output = await agents(HEADRACE_TOKEN=KEYS[ADA])
    assert (code, "plain" in output.split()) == (0, True)
    code, output = await agents()
    assert (code, "--token or HEADRACE_TOKEN" in output) == (1, True)
    code, output = await agents(HEADRACE_TOKEN="another")
    assert (code, "the credential is not valid here" in output) == (1, True)
