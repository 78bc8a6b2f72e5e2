"""The Go gateway in front of a real suite: what it shows is what the embedded facade and gRPC show."""

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
        seen = await through.ask("What is the weather in Paris today?", "react")
        run_id, chat_id = seen[2]["runId"], seen[1]["chatId"]
        ended = [await each.attach(run_id) for each in (suite, through)]
        async with client.attach(run_id) as deltas:
            over_grpc = [json.loads(made.json) async for delta in deltas if (made := json_form.event(delta))]
        assert ended[0] == ended[1] == over_grpc
        assert fold(ended[0]) == fold(seen)
        for seq in range(1, len(seen)):
            assert fold([*seen[:seq], *await through.attach(run_id, seq)]) == fold(seen)
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


async def test_a_file_goes_in_through_the_gateway_and_comes_out_anywhere(suite: Suite) -> None:
    async with behind_gateway(suite) as through:
        form = aiohttp.FormData()
        form.add_field("file", b"a,b\n1,2\n", filename="a.csv")
        async with suite.http.post(f"{through.url}/api/upload", data=form) as response:
            reference = (await response.json())["data"]
        suite.play({"steps": [{"content": "Read."}]})
        events = await through.ask(
            "Read it.", chatId=reference["url"].partition("chatId=")[2][:36], references=[reference]
        )
        (told,) = [event["upload"] for event in events if event["type"] == "request.upload"]
        assert (told["name"], told["sizeBytes"], told["sha256"]) == ("a.csv", 8, reference["sha256"])
        for each in (suite, through):
            async with suite.http.get(each.url + reference["url"], headers={"Range": "bytes=4-"}) as response:
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
