"""The Go gateway in front of a real suite returns the same as the embedded facade and gRPC."""

import asyncio
import json

import aiohttp
import pytest

from headrace.client import Client
from services.runtime.formats import json_form
from tests.support.order import fold, texts
from tests.support.suite import Suite, behind_gateway
from tests.support.timing import within

pytestmark = pytest.mark.asyncio(loop_scope="session")

PIECES = ["\n\n", " ", "ha", "lf", "👩‍👩‍👧", "\u2028", "\u0000", "data: [DONE]\n\n"]


async def test_a_run_through_the_gateway_is_the_same_for_every_reader(suite: Suite) -> None:
    async with behind_gateway(suite) as through, Client(suite.grpc) as client:
        events = await through.ask("What is the weather in Paris today?", "react")
        run_id, chat_id = events[2]["runId"], events[1]["chatId"]
        attached_events = [await server.attach(run_id) for server in (suite, through)]
        async with client.attach(run_id) as deltas:
            over_grpc = [
                json.loads(event_json.json) async for delta in deltas if (event_json := json_form.event(delta))
            ]
        assert attached_events[0] == attached_events[1] == over_grpc
        assert fold(attached_events[0]) == fold(events)
        for seq in range(1, len(events)):
            assert fold([*events[:seq], *await through.attach(run_id, seq)]) == fold(events)
        for path, parameters in (
            ("/readyz", {}),
            ("/readyz", {"all": ""}),
            ("/api/agents", {}),
            ("/api/agent", {"agentKey": "react"}),
            ("/api/tools", {}),
            ("/api/tool", {"toolName": "_bash_"}),
            ("/api/skills", {}),
            ("/api/chats", {"pageSize": "2"}),
            ("/api/chat", {"chatId": chat_id, "includeRawMessages": "true"}),
            ("/api/runs", {"chatId": chat_id}),
            ("/api/run", {"runId": run_id}),
            ("/api/run", {"runId": chat_id}),
            ("/api/viewport", {"viewportKey": "none"}),
        ):
            assert await through.get(path, **parameters) == await suite.get(path, **parameters), path


async def test_deltas_are_byte_exact_through_the_gateway_and_fold_to_one_answer(suite: Suite) -> None:
    suite.play({"steps": [{"reasoning": PIECES}, {"content": PIECES}], "oneByteWrites": True})
    async with behind_gateway(suite) as through:
        events = await through.ask("go")
        assert (texts(events, "reasoning"), texts(events, "content")) == (PIECES, PIECES)
        status, answer = await through.post("/api/query", {"message": "go", "agentKey": "plain", "stream": False})
    assert (status, answer["data"]["content"]) == (200, "".join(PIECES))


async def test_a_file_uploaded_through_the_gateway_is_readable_through_both_facades(suite: Suite) -> None:
    async with behind_gateway(suite) as through:
        form = aiohttp.FormData()
        form.add_field("file", b"a,b\n1,2\n", filename="a.csv")
        async with suite.http.post(f"{through.url}/api/upload", data=form) as response:
            reference = (await response.json())["data"]
        suite.play({"steps": [{"content": "Read."}]})
        events = await through.ask(
            "Read it.", chatId=reference["url"].partition("chatId=")[2][:36], references=[reference]
        )
        (upload,) = [event["upload"] for event in events if event["type"] == "request.upload"]
        assert (upload["name"], upload["sizeBytes"], upload["sha256"]) == ("a.csv", 8, reference["sha256"])
        for server in (suite, through):
            async with suite.http.get(server.url + reference["url"], headers={"Range": "bytes=4-"}) as response:
                assert (response.status, await response.read()) == (206, b"1,2\n")


async def test_leaving_the_gateway_frees_the_provider_within_500_ms(suite: Suite) -> None:
    suite.play({"steps": [{"content": "Hel"}, {"stall": True}]})
    async with behind_gateway(suite) as through, asyncio.timeout(100):
        async with through.query("go", onDisconnect="cancel") as events:
            async for event in events:
                if event["type"] == "content.delta":
                    break
        async with within(0.5):
            await suite.simulator.until_idle()
