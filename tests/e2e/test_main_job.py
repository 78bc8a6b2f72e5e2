"""The main use over real processes: ask, reason, call a real tool, answer, with every delta unchanged."""

import asyncio
import json
from pathlib import Path

import pytest
import standardwebhooks

from headrace.client import Client
from services.runtime.formats import json_form
from tests.support.order import check_order, fold, texts
from tests.support.pairing import assert_paired
from tests.support.suite import Suite, fresh_suite
from tests.support.webhook_receiver import receiving

pytestmark = pytest.mark.asyncio(loop_scope="session")

ODD = [
    "\n\n",
    " ",
    "\t",
    "ha",
    "lf",
    "é",
    "👩‍👩‍👧",
    "\u2028",
    "\u0000",
    'quote " and \\',
    "data: [DONE]\n\n",
    "<think>",
]


async def test_an_agent_thinks_calls_a_tool_and_answers(suite: Suite) -> None:
    events = await suite.ask("What is the weather in Paris today?", "react")
    kinds = [event["type"] for event in events]
    assert {"reasoning.delta", "tool.args", "tool.result", "content.delta"} <= set(kinds)
    start = next(event for event in events if event["type"] == "tool.start")
    assert start["toolName"] == "mock_city_weather"
    result = json.loads(next(event for event in events if event["type"] == "tool.result")["result"])
    assert result["city"] == "Paris"
    assert str(result["temperatureC"]) in "".join(texts(events, "content"))
    assert events[-1]["finishReason"] == "stop"
    assert events[-1]["usage"]["toolCalls"] == 1
    for request in suite.requests():
        assert_paired(request["messages"])


@pytest.mark.parametrize("one_byte_writes", [False, True])
async def test_deltas_pass_every_hop_one_by_one_and_unchanged(suite: Suite, one_byte_writes: bool) -> None:
    suite.play({"steps": [{"reasoning": ODD}, {"content": ODD}], "oneByteWrites": one_byte_writes})
    http = await suite.ask("go")
    async with Client(suite.grpc) as client, client.ask("go", agent_key="plain") as deltas:
        received = [json_form.event(delta) async for delta in deltas]
    grpc = [json.loads(event.json) for event in received if event is not None]
    check_order(grpc)
    for events in (http, grpc):
        assert texts(events, "reasoning") == ODD
        assert texts(events, "content") == ODD


async def test_a_chat_keeps_its_messages_and_lists_its_runs(suite: Suite) -> None:
    first = await suite.ask("What is the weather in Rome?", "react")
    chat_id = first[1]["chatId"]
    second = await suite.ask("Thanks", "react", chatId=chat_id)
    assert "chat.start" not in [event["type"] for event in second]
    sent = suite.requests()[-1]["messages"]
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert_paired(sent)
    status, answer = await suite.get("/api/chat", chatId=chat_id, includeRawMessages="true")
    assert (status, answer["data"]["chatName"]) == (200, "What is the weather in Rome?")
    runs = [event["runId"] for event in answer["data"]["events"] if event["type"] == "run.start"]
    assert len(runs) == 2
    assert fold(answer["data"]["events"])["blocks"] == fold(first)["blocks"] | fold(second)["blocks"]
    assert [message["role"] for message in answer["data"]["rawMessages"]][:2] == ["user", "assistant"]
    status, chats = await suite.get("/api/chats")
    assert chats["data"][0]["chatId"] == chat_id
    status, listed = await suite.get("/api/runs", chatId=chat_id)
    assert [(run["runId"], run["state"]) for run in listed["data"]] == [(run_id, "completed") for run_id in runs]


async def test_attaching_over_http_at_any_seq_gives_the_same_result(suite: Suite) -> None:
    events = await suite.ask("What is the weather in Oslo?", "react")
    run_id = events[-1]["runId"]
    for last_seq in range(0, len(events), 5):
        events_after = await suite.attach(run_id, last_seq)
        assert fold(events[:last_seq] + events_after) == fold(events)
    status, answer = await suite.get("/api/attach", runId=run_id, lastSeq=str(len(events) + 5))
    assert (status, answer["error"]["code"]) == (400, "OUT_OF_RANGE")


async def test_a_command_streams_its_output(suite: Suite) -> None:
    events = await suite.ask("Run `for i in 1 2 3; do echo line $i; sleep 0.1; done`", "react")
    outputs = [event for event in events if event["type"] == "tool.output"]
    assert "".join(event["delta"] for event in outputs) == "line 1\nline 2\nline 3\n"
    assert len(outputs) == 3
    assert outputs[-1]["timestamp"] - outputs[0]["timestamp"] >= 150
    result = next(event for event in events if event["type"] == "tool.result")
    assert result["ok"] is True


async def test_agents_and_tools_are_listed(suite: Suite) -> None:
    _, agents = await suite.get("/api/agents", tag="weather")
    assert [agent["key"] for agent in agents["data"]] == ["once", "parallel", "react", "required", "seeing", "thrifty"]
    _, agent = await suite.get("/api/agent", agentKey="plain")
    assert agent["data"]["instructions"] == "Answer."
    _, tools = await suite.get("/api/tools")
    assert "_bash_" in [tool["name"] for tool in tools["data"]]
    _, ready = await suite.get("/readyz", all="")
    assert ready["data"] == {"orchestrator": True, "memory": True, "tools": True}


async def test_a_program_reads_chats_over_grpc(suite: Suite) -> None:
    events = await suite.ask("Hi")
    async with Client(suite.grpc, memory_address=suite.memory) as client:
        chats = (await client.chats(page_size=1)).chats
        chat = await client.chat(chats[0].chat_id)
    assert chats[0].chat_id == events[1]["chatId"]
    assert [event.seq for event in chat.events][-1] == events[-1]["seq"]


async def test_a_webhook_is_called_when_a_run_has_ended(tmp_path: Path) -> None:
    async with asyncio.timeout(900), receiving() as receiver:
        allow = {"HEADRACE_MEMORY_WEBHOOK_ALLOW": f"127.0.0.1:{receiver.port}"}
        async with fresh_suite(tmp_path, **allow) as suite:
            url = f"http://127.0.0.1:{receiver.port}/in"
            status, webhook = await suite.post("/api/webhooks", {"url": url, "agentKeys": ["plain"]})
            assert status == 200
            events = await suite.ask("hello")
            [post] = await receiver.wait_for(1)
    event = standardwebhooks.Webhook(webhook["data"]["secret"]).verify(post.body, post.headers)
    assert (event["type"], event["data"]["runId"]) == ("headrace.run.ended", events[-1]["runId"])
    assert event["data"]["usage"]["outputTokens"] > 0


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        (b"{nonsense", 400, "body"),
        (b'{"message": "x", "references": [{"name": "a"}]}', 400, "references[0].id"),
        (b'{"message": "x", "agentKey": "nobody"}', 404, "agentKey"),
    ],
)
async def test_a_bad_body_is_refused_with_field_and_rule(suite: Suite, body: bytes, status: int, field: str) -> None:
    got, answer = await suite.post("/api/query", body)
    assert (got, answer["code"], answer["data"]) == (status, status, {})
    assert answer["error"]["details"]["field"] == field
    assert (await suite.ask("still there?"))[-1]["type"] == "run.complete"


async def test_a_bad_agent_file_does_not_affect_others(suite: Suite) -> None:
    (suite.config_dir / "agents" / "broken.json").write_text('{"mode": "LOOP"}')
    (suite.config_dir / "agents" / "extra.json").write_text((suite.config_dir / "agents" / "plain.json").read_text())
    await suite.until_known("extra")
    _, agents = await suite.get("/api/agents")
    keys = [agent["key"] for agent in agents["data"]]
    assert "broken" not in keys
    assert "plain" in keys
    log = (suite.data_dir / "logs" / "suite.log").read_text()
    refused = [json.loads(line) for line in log.splitlines() if "agent file refused" in line]
    assert refused[-1]["file"] == "broken.json"
    assert "mode: Input should be 'ONESHOT', 'REACT', 'PLAN_EXECUTE', 'CUSTOM' or 'REMOTE'" in refused[-1]["problem"]
