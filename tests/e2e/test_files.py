"""A file's way through the suite: uploaded, named in a query, worked on by a command, handed out as an artifact."""

from __future__ import annotations

import aiohttp
import pytest

from tests.e2e.suite import Suite
from tests.order import Event, check_order

pytestmark = pytest.mark.asyncio(loop_scope="session")

COMMAND = '{"command": "sleep 0.3; sort uploads/*.csv > outputs/sorted.csv; cat outputs/sorted.csv"}'


async def test_an_upload_is_worked_on_and_the_artifact_is_downloaded(suite: Suite) -> None:
    form = aiohttp.FormData()
    form.add_field("file", b"pear,2\napple,1\n", filename="fruit.csv")
    async with suite.http.post(f"{suite.url}/api/upload", data=form) as response:
        uploaded = await response.json()
    suite.play({"steps": [{"toolCall": "_bash_", "id": "call_1", "arguments": [COMMAND]}]})
    events: list[Event] = []
    named = {"chatId": uploaded["chatId"], "references": [uploaded["data"]]}
    async with suite.query("Sort it.", "react", **named) as running:
        async for event in running:
            events.append(event)
            if event["type"] == "tool.start":
                suite.play({"steps": [{"content": ["Sorted."]}]})
    check_order(events)
    (artifact,) = [event for event in events if event["type"] == "artifact.publish"]
    async with suite.http.get(suite.url + artifact["url"], headers={"Range": "bytes=0-5"}) as response:
        assert (response.status, await response.read()) == (206, b"apple,")
    assert (artifact["name"], artifact["mimeType"], artifact["sizeBytes"]) == ("sorted.csv", "text/csv", 15)
    assert "fruit.csv" in str(suite.requests()[-1]["messages"])
