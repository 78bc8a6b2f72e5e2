"""MCP requests over real sockets with a scripted orchestrator: refusals, and callers that disconnect or cancel."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ChatBusy, InvalidRequest, ProviderUnavailable
from headrace.shown_text import SHOWN_CHARS_MAX
from headrace.v1 import agent_pb2
from services.facade.mcp_server.protocol import META_CAPABILITIES, META_VERSION, MODERN, TASKS
from tests.support.facade.fronts import Timing
from tests.support.facade.mcp import HEADERS, META, ask_modern, post
from tests.support.facade.openai_api import make_runs
from tests.support.facade.scripted import CHAT, Script, Step, answering, delta, opening, read_all_frames, suite, text
from tests.support.timing import within


def call(name: str = "helper", **fields: Any) -> dict[str, Any]:
    params = {"name": name, "arguments": {"message": "hi"}} | fields
    return {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ([], -32600),
        ({"jsonrpc": "2.0", "id": 1, "method": "nothing"}, -32601),
        ({"jsonrpc": "2.0", "id": [], "method": "ping"}, -32600),
        (call("nobody"), -32602),
        (call(arguments={"message": ""}), -32602),
        (call(arguments={"message": "x", "more": 1}), -32602),
        (call(arguments={"message": "x", "chatId": "x"}), -32602),
        (call(arguments={"message": "x", "files": {}}), -32602),
        (call(arguments={"message": "x", "files": [{"name": "a", "text": "x", "blob": "eA=="}]}), -32602),
        (call(arguments={"message": "x", "files": [{"name": "a", "blob": "%%"}]}), -32602),
        (call(arguments={"message": "x", "files": [{"name": "a", "uri": "https://example.org/a.png"}]}), -32602),
        (call(arguments={"message": "x", "files": [{"name": "a.png", "mimeType": "image/png", "text": "x"}]}), -32602),
        (call(requestState=1), -32602),
        ({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": "file:///etc/passwd"}}, -32602),
        ({"jsonrpc": "2.0", "id": 1, "method": "prompts/get", "params": {"name": "x"}}, -32602),
    ],
)
async def test_an_invalid_request_gets_the_protocols_error_code(tmp_path: Path, body: Any, code: int) -> None:
    async with suite(tmp_path, Script(query=answering("x"), publish=["mcp"])) as facade:
        _, answer = await post(facade, body)
        assert answer["error"]["code"] == code
        assert not [request for request in facade.script.requests if isinstance(request, agent_pb2.QueryRequest)]


async def test_malformed_capabilities_are_ignored(tmp_path: Path) -> None:
    async with suite(tmp_path, Script(publish=["mcp"])) as facade:
        hello = {"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": {"capabilities": 1}}
        status, answer = await post(facade, hello)
    assert (status, answer["result"]["protocolVersion"]) == (200, "2025-11-25")


async def test_null_fields_are_treated_as_absent_and_a_trailing_slash_is_accepted(tmp_path: Path) -> None:
    files = [{"name": "a.csv", "text": "a,b", "blob": None, "mimeType": None}]
    async with suite(tmp_path, Script(query=answering("x"), publish=["mcp"])) as facade:
        body = call(arguments={"message": "hi", "chatId": None, "files": None}, _meta=None)
        assert (await post(facade, body))[1]["result"]["content"] == [{"type": "text", "text": "x"}]
        await post(facade, call(arguments={"message": "hi", "files": files}))
        assert [data for _, data in facade.tools.uploaded] == [b"a,b"]
        async with facade.http.post("/mcp/", json=body, headers=HEADERS) as response:
            assert response.status == 200


async def test_empty_strings_are_treated_as_absent_where_they_mean_nothing(tmp_path: Path) -> None:
    files = [{"name": "a", "text": "", "blob": "YSxi"}, {"name": "b", "text": "a,b", "blob": "", "mimeType": ""}]
    async with suite(tmp_path, Script(query=answering("x"), publish=["mcp"])) as facade:
        status, answer = await post(facade, call(arguments={"message": "hi", "chatId": "", "files": files}))
        assert (status, answer["result"]["content"]) == (200, [{"type": "text", "text": "x"}])
        assert [data for _, data in facade.tools.uploaded] == [b"a,b", b"a,b"]
        await post(facade, call(arguments={"message": "hi", "files": [{"name": "a", "text": ""}]}))
        assert facade.tools.uploaded[-1][1] == b""


@pytest.mark.parametrize("number", [7, 7.0, 1e20])
async def test_a_request_id_may_be_any_number_and_is_returned_unchanged(tmp_path: Path, number: float) -> None:
    """Languages in which every number is a float write an id as 7.0."""
    async with suite(tmp_path, Script(publish=["mcp", "a2a"])) as facade:
        _, answer = await post(facade, {"jsonrpc": "2.0", "id": number, "method": "tools/list"})
        assert (answer["id"], "result" in answer) == (number, True)
        body = {"jsonrpc": "2.0", "id": number, "method": "ListTasks", "params": None}
        async with facade.http.post("/a2a/helper", json=body) as response:
            answer = await response.json()
            assert (answer["id"], "result" in answer) == (number, True)


UNKNOWN = "unknown tool: no agent 'helper' is published here"


async def test_an_unpublished_agent_is_not_offered_as_a_tool(tmp_path: Path) -> None:
    async with suite(tmp_path, Script(query=answering("x"), publish=["a2a"])) as facade:
        assert (await post(facade, call()))[1]["error"]["message"] == UNKNOWN
        _, listed = await post(facade, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        assert listed["result"]["tools"] == []


async def test_a_request_with_a_version_is_checked_against_its_headers(tmp_path: Path) -> None:
    async with suite(tmp_path, Script(query=answering("x"), publish=["mcp"])) as facade:
        headers = {"MCP_Protocol_Version": MODERN, "Mcp_Method": "tools/call", "Mcp_Name": "helper"}
        status, answer = await post(facade, call(_meta=META), **headers)
        assert (status, answer["result"]["resultType"]) == (200, "complete")
        status, answer = await post(facade, call(_meta=META), **headers | {"Mcp_Name": "other"})
        assert (status, answer["error"]["code"]) == (400, -32020)
        status, answer = await post(facade, call(_meta=META), **headers | {"Mcp_Name": "=?base64?x?="})
        assert (status, answer["error"]["code"]) == (400, -32020)
        future = META | {META_VERSION: "2099-01-01"}
        status, answer = await post(facade, call(_meta=future), **headers | {"MCP_Protocol_Version": "2099-01-01"})
        assert (status, answer["error"]["code"], MODERN in answer["error"]["data"]["supported"]) == (400, -32022, True)


@pytest.mark.parametrize(
    ("changed", "code"), [({"Mcp_Method": "tools/call"}, -32020), ({"MCP_Protocol_Version": "2099-01-01"}, -32020)]
)
async def test_a_header_error_includes_the_request_id(tmp_path: Path, changed: dict[str, str], code: int) -> None:
    body, headers = ask_modern("tools/list")
    async with suite(tmp_path, Script(publish=["mcp"])) as facade:
        status, answer = await post(facade, body, **headers | changed)
    assert (status, answer["id"], answer["error"]["code"]) == (400, 7, code)


async def test_a_method_removed_in_2026_07_28_is_unknown_in_that_version(tmp_path: Path) -> None:
    body, headers = ask_modern("ping")
    async with suite(tmp_path, Script(publish=["mcp"])) as facade:
        status, answer = await post(facade, body, **headers)
        assert (status, answer["error"]["code"]) == (404, -32601)
        assert (await post(facade, {"jsonrpc": "2.0", "id": 7, "method": "ping"}))[1]["result"] == {}


@pytest.mark.parametrize("uri", ["test://nothing", "headrace://chats/11111111-1111-4111-8111-111111111111"])
async def test_a_missing_resource_is_named_with_its_versions_error_code(tmp_path: Path, uri: str) -> None:
    body, headers = ask_modern("resources/read", uri, uri=uri)
    async with suite(tmp_path, Script(publish=["mcp"])) as facade:
        _, answer = await post(facade, body, **headers)
    assert (answer["error"]["code"], answer["error"].get("data")) == (-32602, {"uri": uri})


async def test_ending_a_session_is_answered_with_405(tmp_path: Path) -> None:
    session = {"Mcp-Session-Id": "hr--" + "0" * 32}
    async with (
        suite(tmp_path, Script(publish=["mcp"])) as facade,
        facade.http.delete("/mcp", headers=session) as response,
    ):
        assert response.status == 405


def ask_task(
    method: str, task_id: Any, *, declares: bool = True, **params: Any
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the body and the headers of a request of the tasks extension."""
    meta = META | {META_CAPABILITIES: {"extensions": {TASKS: {}}} if declares else {}}
    body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": {"taskId": task_id, "_meta": meta} | params}
    return body, {"MCP_Protocol_Version": MODERN, "Mcp_Method": method, "Mcp_Name": str(task_id)}


@pytest.mark.parametrize(
    ("task_request", "code"),
    [
        (ask_task("tasks/get", "nothing"), -32602),
        (ask_task("tasks/cancel", "11111111-1111-4111-8111-111111111111"), -32602),
        (ask_task("tasks/update", "11111111-1111-4111-8111-111111111111", inputResponses={}), -32602),
        (ask_task("tasks/get", "11111111-1111-4111-8111-111111111111", declares=False), -32021),
        (ask_task("tasks/result", "11111111-1111-4111-8111-111111111111"), -32601),
        (ask_task("tasks/list", "11111111-1111-4111-8111-111111111111"), -32601),
    ],
)
async def test_unknown_tasks_and_clients_without_the_tasks_extension_get_errors(
    tmp_path: Path, task_request: tuple[Any, dict[str, str]], code: int
) -> None:
    body, headers = task_request
    async with suite(tmp_path, Script(run=agent_pb2.Run(agent_key="of another"), publish=["mcp"])) as facade:
        assert (await post(facade, body, **headers))[1]["error"]["code"] == code


async def test_tasks_are_listed_newest_first(tmp_path: Path) -> None:
    runs = make_runs(230)
    async with suite(tmp_path, Script(publish=["mcp"], runs=runs)) as facade:
        _, answer = await post(facade, {"jsonrpc": "2.0", "id": 7, "method": "tasks/list", "params": {}})
    assert [task["taskId"] for task in answer["result"]["tasks"]] == [run.run_id for run in reversed(runs[-50:])]


async def test_a_call_of_a_version_without_tasks_ignores_the_task_field(tmp_path: Path) -> None:
    async with suite(tmp_path, Script(query=answering("x"), publish=["mcp"])) as facade:
        _, answer = await post(facade, call(task={}), MCP_Protocol_Version="2025-06-18")
        assert answer["result"]["structuredContent"]["answer"] == "x"


async def test_errors_before_and_during_the_stream_are_json_rpc_errors(tmp_path: Path) -> None:
    async with suite(tmp_path, Script(publish=["mcp"]), timing=Timing(heartbeat_s=0.05)) as facade:
        for steps in ([ChatBusy("busy")], [0.3, ChatBusy("busy")], [*opening(), 0.2, ProviderUnavailable("gone")]):
            facade.script.query = steps
            _, answer = await post(facade, call())
            assert (answer["id"], answer["error"]["data"]["reason"]) == (7, steps[-1].reason)  # pyright: ignore


async def test_disconnecting_or_cancelling_stops_the_run(tmp_path: Path) -> None:
    steps: list[Step] = [*opening(), text(4, "x"), asyncio.Event()]
    async with suite(tmp_path, Script(query=steps, publish=["mcp"]), timing=Timing(heartbeat_s=0.05)) as facade:
        async with within(5), facade.http.post("/mcp", json=call(), headers=HEADERS) as response:
            await response.content.readline()
        async with within(5):
            await facade.script.cancelled.wait()
        facade.script.cancelled.clear()
        async with within(5), facade.http.post("/mcp", json=call(), headers=HEADERS) as response:
            await response.content.readline()
            cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
            assert (await post(facade, cancel))[0] == 202
            await facade.script.cancelled.wait()


async def test_an_ambiguous_cancel_stops_no_call(tmp_path: Path) -> None:
    steps: list[Step] = [*opening(), text(4, "x"), asyncio.Event()]
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
    timing = Timing(heartbeat_s=0.05)
    async with (
        within(30),
        suite(tmp_path, Script(query=steps, publish=["mcp"]), timing=timing) as facade,
        facade.http.post("/mcp", json=call(), headers=HEADERS) as first,
    ):
        await first.content.readline()
        async with facade.http.post("/mcp", json=call(), headers=HEADERS) as other:
            await other.content.readline()
            assert (await post(facade, cancel))[0] == 202
            assert not facade.script.cancelled.is_set()
        await facade.script.cancelled.wait()
        facade.script.cancelled.clear()
        assert (await post(facade, cancel))[0] == 202
        assert facade.script.cancelled.is_set()


async def test_files_of_a_call_become_references_of_its_query(tmp_path: Path) -> None:
    files = [{"name": "a.csv", "mimeType": "text/csv", "text": "a,b"}, {"name": "b.bin", "blob": "AAE="}]
    async with suite(tmp_path, Script(query=answering("alike"), publish=["mcp"])) as facade:
        _, answer = await post(facade, call(arguments={"message": "Compare", "files": files}))
        (query,) = [request for request in facade.script.requests if isinstance(request, agent_pb2.QueryRequest)]
        assert answer["result"]["structuredContent"]["answer"] == "alike"
        assert [(start.name, data) for start, data in facade.tools.uploaded] == [("a.csv", b"a,b"), ("b.bin", b"\0\1")]
        assert [reference.name for reference in query.references] == ["a.csv", "b.bin"]
        assert (query.message, query.chat_id) == ("Compare\n[a.csv]\n[b.bin]", CHAT)
        facade.tools.refused = InvalidRequest.of("file", "is larger than 10 MiB")
        _, answer = await post(facade, call(arguments={"message": "Compare", "files": files}))
        assert (answer["error"]["code"], "files[0]" in answer["error"]["message"]) == (-32602, True)


@pytest.mark.parametrize("token", ["mine", None])
async def test_a_client_that_requests_progress_receives_it_while_the_run_is_silent(
    tmp_path: Path, token: str | None
) -> None:
    first, *later_steps = answering("x")[3:]
    script = Script(query=[*opening(), first, 40.0, *later_steps], publish=["mcp"])
    body = call() if token is None else call(_meta={"progressToken": token})
    async with suite(tmp_path, script) as facade, facade.http.post("/mcp", json=body, headers=HEADERS) as response:
        *notifications, answer = [json.loads(frame.data) for frame in await read_all_frames(response)]
    expected = [{"progressToken": token, "progress": number, "message": "at work"} for number in (1, 2)]
    assert [notification["params"] for notification in notifications] == (expected if token else [])
    assert answer["result"]["content"][0]["text"] == "x"


@pytest.mark.parametrize("chars", [5000, SHOWN_CHARS_MAX])
async def test_approval_is_offered_only_when_all_arguments_can_be_shown(tmp_path: Path, chars: int) -> None:
    given = json.dumps({"a": "x" * chars, "to": "mal\u202elory"}, ensure_ascii=False)
    gate = agent_pb2.GateOpen(gate_id="approval_1", kind="approval", tool_id="t_1", tool_name="pay", reason="it costs")
    called = agent_pb2.ToolSnapshot(tool_id="t_1", tool_name="pay", tool_params=given)
    steps: list[Step] = [*opening(), delta(4, tool_snapshot=called), delta(5, gate_open=gate), asyncio.Event()]
    meta = META | {META_CAPABILITIES: {"elicitation": {}}}
    headers = {"MCP_Protocol_Version": MODERN, "Mcp_Method": "tools/call", "Mcp_Name": "helper"}
    async with suite(tmp_path, Script(query=steps, publish=["mcp"])) as facade:
        _, answer = await post(facade, call(_meta=meta), **headers)
    [elicitation] = answer["result"]["inputRequests"].values()
    choices = elicitation["params"]["requestedSchema"]["properties"]["decision"]["enum"]
    is_whole = given.replace("\u202e", "\\u202e") in elicitation["params"]["message"]
    assert (is_whole, choices) == ((True, ["approve", "reject"]) if chars == 5000 else (False, ["reject"]))
    assert is_whole or f"{len(given):,} characters" in elicitation["params"]["message"]
