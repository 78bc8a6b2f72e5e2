"""A2A requests over real sockets with a scripted orchestrator: cards, refusals, streams that end early."""

import asyncio
import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ChatBusy, InvalidRequest, ProviderUnavailable
from headrace.v1 import agent_pb2, common_pb2
from tests.support.facade.a2a import URL, fold, message, post, rpc, stream
from tests.support.facade.fronts import Timing
from tests.support.facade.openai_api import answer_from, block, client_call, make_run, make_runs, own_call, reset
from tests.support.facade.scripted import BLOCK, CHAT, RUN, Script, Step, answering, complete, delta, opening, suite
from tests.support.timing import within


async def test_an_agent_card_lists_the_addresses_of_its_agent(tmp_path: Path) -> None:
    async with suite(tmp_path, Script(publish=["a2a"])) as facade:
        async with facade.http.get(f"{URL}/.well-known/agent-card.json") as response:
            card = await response.json()
        *over_http, over_grpc = card["supportedInterfaces"]
        assert [interface["protocolBinding"] for interface in over_http] == ["JSONRPC", "HTTP+JSON"]
        assert {interface["url"] for interface in over_http} == {facade.url + URL}
        assert (over_grpc["protocolBinding"], over_grpc["tenant"]) == ("GRPC", "helper")
        async with facade.http.get("/a2a") as response:
            assert (await response.json())["agentCards"] == [card]
        path = f"{URL}/.well-known/agent-card.json"
        async with facade.http.get(path, headers={"Host": "localhost"}) as response:
            (*_, over_grpc) = (await response.json())["supportedInterfaces"]
        assert over_grpc["url"].startswith("localhost:"), "the address that it listens at may not be reachable"


async def test_an_unpublished_agent_has_no_card_and_accepts_no_message(tmp_path: Path) -> None:
    async with suite(tmp_path, Script(publish=["mcp"])) as facade:
        async with facade.http.get(f"{URL}/.well-known/agent-card.json") as response:
            assert response.status == 404
        _, answer = await post(facade, rpc("SendMessage", message()))
        assert answer["error"]["code"] == -32001
        assert not [request for request in facade.script.requests if isinstance(request, agent_pb2.QueryRequest)]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"jsonrpc": "2.0", "method": "GetTask"}, -32600),
        (rpc("Nothing", {}), -32601),
        (rpc("SendMessage", {}), -32602),
        (rpc("SendMessage", message({"url": "x"})), -32005),
        (rpc("SendMessage", message(contextId="x")), -32602),
        (rpc("SendMessage", message(role="ROLE_AGENT")), -32602),
        (rpc("SendStreamingMessage", message({"text": ""})), -32602),
        (rpc("ListTasks", {"pageSize": 1000}), -32602),
        (rpc("SendMessage", message(taskId="x")), -32001),
        (rpc("GetTask", {"id": "x"}), -32001),
        (rpc("CreateTaskPushNotificationConfig", {}), -32001),
        (rpc("GetTaskPushNotificationConfig", {"taskId": "x", "id": "c"}), -32001),
        (rpc("GetExtendedAgentCard", {}), -32007),
    ],
)
async def test_an_invalid_request_gets_the_protocols_error_code(tmp_path: Path, body: Any, code: int) -> None:
    async with suite(tmp_path, Script(query=answering("x"), publish=["a2a"])) as facade:
        assert (await post(facade, body))[1]["error"]["code"] == code
        assert not [request for request in facade.script.requests if isinstance(request, agent_pb2.QueryRequest)]


async def test_both_json_media_types_and_a_trailing_slash_are_accepted(tmp_path: Path) -> None:
    async with suite(tmp_path, Script(query=answering("x"), publish=["a2a"])) as facade:
        for path in (URL, f"{URL}/"):
            _, answer = await post(facade, rpc("SendMessage", message()), path)
            assert answer["result"]["task"]["artifacts"][0]["parts"] == [{"text": "x"}]
        path = f"{URL}/message:send"
        status, answer = await post(facade, message(), path, **{"Content-Type": "application/a2a+json"})
        assert (status, answer["task"]["status"]["state"]) == (200, "TASK_STATE_COMPLETED")
        status, answer = await post(facade, message(), path, **{"Content-Type": "text/plain"})
        assert (status, answer["error"]["details"][0]["reason"]) == (415, "CONTENT_TYPE_NOT_SUPPORTED")
        context = "5f0c2f6e-8c3b-4c0e-9a51-2b7f7c0a4c11"
        await post(facade, rpc("SendMessage", message(contextId=context.upper())))
        assert facade.script.requests[-1].chat_id == context
        _, answer = await post(facade, rpc("ListTasks", {"contextId": "x"}))
        assert answer["result"] == {"tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0}


async def test_an_unchanged_agent_card_is_not_sent_again(tmp_path: Path) -> None:
    async with suite(tmp_path, Script(publish=["a2a"])) as facade:
        path = f"{URL}/.well-known/agent-card.json"
        async with facade.http.get(path) as response:
            assert response.headers["Cache-Control"] == "private, max-age=60"
            known = response.headers["ETag"]
        for tag, status in ((known, 304), ('"other"', 200)):
            async with facade.http.get(path, headers={"If-None-Match": tag}) as response:
                assert response.status == status


@pytest.mark.parametrize("context", [{"contextId": CHAT}, {}])
async def test_tasks_are_listed_in_pages_newest_first(tmp_path: Path, context: dict[str, str]) -> None:
    runs = make_runs(230)
    async with suite(tmp_path, Script(publish=["a2a"], runs=runs)) as facade:
        _, newest = await post(facade, rpc("ListTasks", context | {"pageSize": 1}))
        assert [task["id"] for task in newest["result"]["tasks"]] == [runs[-1].run_id]
        found: list[str] = []
        token: str | None = None
        while token != "":
            _, answer = await post(facade, rpc("ListTasks", context | {"pageSize": 100, "pageToken": token or ""}))
            found += [task["id"] for task in answer["result"]["tasks"]]
            token = answer["result"]["nextPageToken"]
            assert answer["result"]["totalSize"] == 230
        assert found == [run.run_id for run in reversed(runs)]
        changed = context | {"statusTimestampAfter": "2023-11-14T22:17:07.500Z"}  # the 227.5th second
        _, answer = await post(facade, rpc("ListTasks", changed))
        assert [task["id"][-3:] for task in answer["result"]["tasks"]] == ["229", "228"]
        async with facade.http.get(f"{URL}/tasks", params=changed) as response:
            assert (await response.json())["totalSize"] == 2
        for wrong in ({"statusTimestampAfter": "yesterday"}, {"statusTimestampAfter": 1}, {"pageToken": "x"}):
            assert (await post(facade, rpc("ListTasks", context | wrong)))[1]["error"]["code"] == -32602


async def test_an_ended_task_includes_its_answer_even_when_reading_it_is_slow(tmp_path: Path) -> None:
    *earlier, end = answering("20 °C")
    script = Script(publish=["a2a"], run=make_run("completed"), attaches=[[*earlier, 2.5, end]])
    async with suite(tmp_path, script) as facade:
        _, answer = await post(facade, rpc("GetTask", {"id": RUN}))
    assert answer["result"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert answer["result"]["artifacts"][0]["parts"] == [{"text": "20 °C"}]


async def test_a_cancelled_task_includes_its_ids_even_without_events(tmp_path: Path) -> None:
    script = Script(publish=["a2a"], run=make_run("running"), attaches=[[3600.0]])
    async with suite(tmp_path, script) as facade:
        _, answer = await post(facade, rpc("CancelTask", {"id": RUN}))
    assert (answer["result"]["id"], answer["result"]["contextId"]) == (RUN, CHAT)


def wait(**gate: Any) -> list[Step]:
    """Return the first events of a run that waits at a gate."""
    return [*opening(), delta(4, gate_open=agent_pb2.GateOpen(gate_id="t_g", **gate))]


APPROVAL = {"kind": "approval", "tool_name": "pay"}
GO_ON = delta(5, gate_close=agent_pb2.GateClose(gate_id="t_g"))


def answer_task(text: str, **fields: Any) -> Any:
    """Return the request that answers the gate the task waits at."""
    return rpc("SendMessage", {"message": message({"text": text})["message"] | {"taskId": RUN}} | fields)


async def test_a_subscription_stays_open_while_the_task_waits(tmp_path: Path) -> None:
    steps = [*wait(**APPROVAL), 0.6, GO_ON, *answer_from(6, "paid")]
    script = Script(publish=["a2a"], run=make_run("waiting"), attaches=[steps])
    async with suite(tmp_path, script) as facade:
        events = [event_or_reply["result"] for event_or_reply in await stream(facade, "SubscribeToTask", {"id": RUN})]
    states = [event["statusUpdate"]["status"]["state"] for event in events if "statusUpdate" in event]
    assert states == [f"TASK_STATE_{word}" for word in ("INPUT_REQUIRED", "WORKING", "COMPLETED")]


@pytest.mark.parametrize(
    ("gate", "state", "text"),
    [
        ({"kind": "form"}, "INPUT_REQUIRED", "mail waits for an answer"),
        ({"kind": "form", "ask": {"url": "https://x/"}}, "INPUT_REQUIRED", "mail waits for an answer"),
        (
            {"kind": "form", "ask": {"url": "https://sso/", "authorizes": True}},
            "AUTH_REQUIRED",
            "mail waits for an authorization at https://sso/: then say done",
        ),
        ({"kind": "credential"}, "AUTH_REQUIRED", "mail waits for a credential"),
    ],
)
async def test_a_task_waiting_for_an_authorization_reports_that_state(
    tmp_path: Path, gate: dict[str, Any], state: str, text: str
) -> None:
    script = Script(publish=["a2a"], run=make_run("waiting"), attaches=[[*wait(tool_name="mail", **gate), 3600.0]])
    async with suite(tmp_path, script) as facade:
        _, answer = await post(facade, rpc("GetTask", {"id": RUN}))
        task = answer["result"]
        assert task["status"]["state"] == f"TASK_STATE_{state}"
        parts = task["status"]["message"]["parts"]
        assert parts[0] == {"text": text}
        assert parts[1]["data"].get("url") == gate.get("ask", {}).get("url")


@pytest.mark.parametrize(
    ("text", "payload"), [("Done", {"done": True}), ("no", {"cancelled": True}), ('{"done": false}', {"done": False})]
)
async def test_a_message_confirms_that_the_authorization_page_was_visited(
    tmp_path: Path, text: str, payload: Any
) -> None:
    need = common_pb2.InputNeed(name="n", url="https://sso/", authorizes=True)
    waiting = wait(kind="form", tool_name="mail", ask=need)
    resumed = [*waiting, GO_ON, *answer_from(6, "sent")]
    script = Script(publish=["a2a"], run=make_run("waiting"), attaches=[[*waiting, 3600.0], resumed])
    async with suite(tmp_path, script) as facade:
        _, answer = await post(facade, answer_task(text))
    assert answer["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    [submit] = [request for request in script.requests if isinstance(request, agent_pb2.SubmitRequest)]
    assert json.loads(submit.payload) == payload


async def test_a_non_blocking_answer_to_a_task_returns_the_task_at_once(tmp_path: Path) -> None:
    waiting = wait(**APPROVAL)
    script = Script(publish=["a2a"], run=make_run("waiting"), attaches=[[*waiting, 3600.0], [*waiting, GO_ON, 3600.0]])
    async with suite(tmp_path, script) as facade:
        _, answer = await post(facade, answer_task("approve", configuration={"returnImmediately": True}))
    assert answer["result"]["task"]["status"]["state"] == "TASK_STATE_WORKING"
    assert script.submitted.is_set()


async def test_a_task_that_needs_more_approvals_stays_input_required(tmp_path: Path) -> None:
    attaches = [[*wait(**APPROVAL), 3600.0]]
    script = Script(publish=["a2a"], run=make_run("waiting"), attaches=attaches, submit_status="voted")
    async with suite(tmp_path, script) as facade, within(20):
        _, answer = await post(facade, answer_task("approve"))
    assert answer["result"]["task"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"


async def test_return_immediately_does_not_end_a_stream_early(tmp_path: Path) -> None:
    async with suite(tmp_path, Script(query=answering("20", " °C"), publish=["a2a"])) as facade:
        sent = message() | {"configuration": {"returnImmediately": True}}
        assert fold(await stream(facade, "SendStreamingMessage", sent)) == ("20 °C", "TASK_STATE_COMPLETED")


async def test_the_rest_binding_refuses_another_version_with_status_400(tmp_path: Path) -> None:
    async with suite(tmp_path, Script(query=answering("x"), publish=["a2a"])) as facade:
        status, answer = await post(facade, message(), f"{URL}/message:send", **{"A2A-Version": "9.0"})
        assert (status, answer["error"]["details"][0]["reason"]) == (400, "VERSION_NOT_SUPPORTED")


async def test_the_answer_is_the_text_after_the_last_tool_call(tmp_path: Path) -> None:
    steps = [*opening(), *block(4, BLOCK, "I ", "look."), *own_call(8)]
    lost = [*block(12, f"{RUN}_c_2", "lo")[:-1], reset(14, 11)]
    script = Script(query=[*steps, *lost, *block(15, f"{RUN}_c_3", "20", " °C"), answering()[-1]], publish=["a2a"])
    async with suite(tmp_path, script) as facade:
        events = await stream(facade, "SendStreamingMessage", message())
        assert list(events[0]["result"]) == ["task"]
        assert fold(events) == ("20 °C", "TASK_STATE_COMPLETED")


@pytest.mark.parametrize(
    "past",
    [
        {"tool_snapshot": agent_pb2.ToolSnapshot(tool_id="x", tool_name="weather", tool_params="{}")},
        {"action_snapshot": agent_pb2.ActionSnapshot(action_id="x", action_name="show")},
        {"action_start": agent_pb2.ActionStart(action_id="x", run_id=RUN, action_name="show")},
    ],
    ids=["a past call", "a past action", "an action"],
)
async def test_text_before_a_tool_call_is_not_in_the_answer_of_a_late_subscriber(
    tmp_path: Path, past: dict[str, Any]
) -> None:
    remark = agent_pb2.ContentSnapshot(content_id=BLOCK, run_id=RUN, text="I look.")
    steps: list[Step] = [*opening(), delta(6, content_snapshot=remark), delta(7, **past)]
    all_steps = [*steps, *block(9, f"{RUN}_c_2", "20", " °C"), complete(13)]
    async with suite(tmp_path, Script(publish=["a2a"], run=make_run("running"), attaches=[all_steps])) as facade:
        events = await stream(facade, "SubscribeToTask", {"id": RUN})
    assert fold(events) == ("20 °C", "TASK_STATE_COMPLETED")


async def test_a_subscriber_resumes_after_its_cursor(tmp_path: Path) -> None:
    script = Script(publish=["a2a"], run=make_run("running"), attaches=[answering("one", " two")])
    async with suite(tmp_path, script) as facade:
        whole = await stream(facade, "SubscribeToTask", {"id": RUN})
        later_events = await stream(facade, "SubscribeToTask", {"id": RUN}, **{"Last-Event-ID": "5"})
    assert fold(whole) == fold(later_events) == ("one two", "TASK_STATE_COMPLETED")
    assert len(later_events) == len(whole) - 1


async def test_a_repeated_message_starts_no_second_context(tmp_path: Path) -> None:
    async with suite(tmp_path, Script(query=answering("x"), publish=["a2a"])) as facade:
        for sent in (message(), message(), message({"text": "bye"}), message(messageId="n"), message(contextId=CHAT)):
            await post(facade, rpc("SendMessage", sent))
        queries = [request for request in facade.script.requests if isinstance(request, agent_pb2.QueryRequest)]
    first, again, other_words, other_id, in_context = (query.chat_id for query in queries)
    assert first == again
    assert len({first, other_words, other_id, in_context}) == 4
    assert in_context == CHAT


async def test_a_non_blocking_message_returns_the_task_as_soon_as_it_starts(tmp_path: Path) -> None:
    sent = message() | {"configuration": {"returnImmediately": True}}
    waits: list[float] = []
    async with suite(tmp_path, Script(query=[*opening(), asyncio.Event()], publish=["a2a"])) as facade:
        for _ in range(5):  # a busy machine may be slow once
            begun_s = time.monotonic()
            _, answer = await post(facade, rpc("SendMessage", sent))
            waits.append(time.monotonic() - begun_s)
            assert answer["result"]["task"]["status"]["state"] == "TASK_STATE_WORKING"
    assert min(waits) < 0.9, "it is not kept back for the end of a call that goes on"


async def test_a_snapshot_replaces_the_part_of_its_block_already_sent(tmp_path: Path) -> None:
    again = delta(7, content_snapshot=agent_pb2.ContentSnapshot(content_id=BLOCK, text="one two"))
    script = Script(query=[*block(4, BLOCK, "one ")[:-1], again, complete(8)], publish=["a2a"])
    script.query = [*opening(), *script.query]
    async with suite(tmp_path, script) as facade:
        assert fold(await stream(facade, "SendStreamingMessage", message())) == ("one two", "TASK_STATE_COMPLETED")


async def test_errors_before_and_during_the_stream_are_json_rpc_errors(tmp_path: Path) -> None:
    async with suite(tmp_path, Script(query=[ChatBusy("busy")], publish=["a2a"])) as facade:
        _, answer = await post(facade, rpc("SendStreamingMessage", message()))
        assert answer["error"]["data"][0]["metadata"]["reason"] == "CHAT_BUSY"
    async with suite(tmp_path, Script(publish=["a2a"]), timing=Timing(heartbeat_s=0.05)) as facade:
        slow: list[Step] = [0.3, ChatBusy("busy")]
        for steps in (slow, [*opening(), 0.2, ProviderUnavailable("gone")]):
            facade.script.query = steps
            assert (await stream(facade, "SendStreamingMessage", message()))[-1]["error"]["code"] == -32603


async def test_a_disconnecting_reader_does_not_cancel_the_task(tmp_path: Path) -> None:
    steps: list[Step] = [*opening(), *client_call(4, "t_0000000a")[:1], asyncio.Event()]
    async with suite(tmp_path, Script(query=steps, publish=["a2a"])) as facade:
        body = rpc("SendStreamingMessage", message())
        async with within(5), facade.http.post(URL, json=body) as response:
            await response.content.readline()
        async with within(5):
            await facade.script.closed.wait()
        assert not facade.script.cancelled.is_set()
        query = next(request for request in facade.script.requests if isinstance(request, agent_pb2.QueryRequest))
        assert query.on_disconnect == ""


PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x02\x00\x00\x00\x90wS\xde"


def raw(data: bytes = PNG, **fields: str) -> dict[str, str]:
    return {"raw": base64.b64encode(data).decode()} | fields


async def test_files_of_a_message_become_references_of_its_query(tmp_path: Path) -> None:
    absent = dict.fromkeys(("text", "data", "url"))  # programs without protobuf write null
    table = raw(b"a,b", filename="a.csv", mediaType="text/csv")
    parts = [{"text": "Compare"}, raw(media_type="image/png"), absent | table]
    async with suite(tmp_path, Script(query=answering("alike"), publish=["a2a"])) as facade:
        _, answer = await post(facade, rpc("SendMessage", message(*parts)))
        query = next(request for request in facade.script.requests if isinstance(request, agent_pb2.QueryRequest))
        uploaded = facade.tools.uploaded
    assert answer["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert [data for _, data in uploaded] == [PNG, b"a,b"]
    assert uploaded[0][0].name.startswith("image-"), "a part's fields have either name, too"
    assert [reference.name for reference in query.references] == [uploaded[0][0].name, "a.csv"]
    assert query.message == f"Compare\n[{uploaded[0][0].name}]\n[a.csv]"
    assert {start.chat_id for start, _ in uploaded} == {query.chat_id}


@pytest.mark.parametrize(
    ("part", "code", "problem"),
    [
        ({"url": "https://example.org/a.png"}, -32005, "message.parts[1].url"),
        ({"raw": "%%"}, -32602, "message.parts[1].raw"),
        (raw(b"no picture", mediaType="image/png"), -32602, "message.parts[1]"),
        ({"video": "x"}, -32005, "message.parts[1]"),
    ],
    ids=["an address", "no base64", "no picture", "something else"],
)
async def test_an_unsupported_message_part_is_named_in_the_error(
    tmp_path: Path, part: Any, code: int, problem: str
) -> None:
    async with suite(tmp_path, Script(query=answering("x"), publish=["a2a"])) as facade:
        _, answer = await post(facade, rpc("SendMessage", message({"text": "this"}, part)))
        assert answer["error"]["code"] == code
        assert problem in answer["error"]["message"]
        facade.tools.refused = InvalidRequest.of("file", "is larger than 10 MiB")
        _, answer = await post(facade, rpc("SendMessage", message({"text": "this"}, raw())))
        assert answer["error"]["code"] == -32602
        assert "message.parts[1]" in answer["error"]["message"]
        assert not [request for request in facade.script.requests if isinstance(request, agent_pb2.QueryRequest)]


async def test_files_created_by_a_run_are_artifacts(tmp_path: Path) -> None:
    path = f"/api/resource?chatId={CHAT}&path=outputs%2Fa.csv"
    artifact = agent_pb2.ArtifactPublish(artifact_id="f1", run_id=RUN, name="a.csv", mime_type="text/csv", url=path)
    steps: list[Step] = [*opening(), delta(4, artifact_publish=artifact), complete(5)]
    async with suite(tmp_path, Script(query=steps, attaches=[steps], publish=["a2a"])) as facade:
        part = {"url": f"{facade.url}{path}", "filename": "a.csv", "mediaType": "text/csv"}
        expected = {"artifactId": "f1", "name": "a.csv", "parts": [part]}
        _, answer = await post(facade, rpc("SendMessage", message()))
        assert answer["result"]["task"]["artifacts"] == [expected]
        events = [
            event_or_reply["result"] for event_or_reply in await stream(facade, "SendStreamingMessage", message())
        ]
    assert [
        event_or_reply["artifactUpdate"]["artifact"] for event_or_reply in events if "artifactUpdate" in event_or_reply
    ] == [expected]
