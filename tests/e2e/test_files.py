"""Files through the whole suite: an upload that becomes an artifact, and a picture in a model's answer."""

import base64
import io
import json

import aiohttp
import pytest
from PIL import Image

from tests.support.order import Event, check_order
from tests.support.suite import Suite, behind_gateway

pytestmark = pytest.mark.asyncio(loop_scope="session")

COMMAND = '{"command": "sleep 0.3; sort uploads/*.csv > outputs/sorted.csv; cat outputs/sorted.csv"}'


async def test_an_upload_is_processed_and_its_artifact_downloaded(suite: Suite) -> None:
    form = aiohttp.FormData()
    form.add_field("file", b"pear,2\napple,1\n", filename="fruit.csv")
    async with suite.http.post(f"{suite.url}/api/upload", data=form) as response:
        uploaded = await response.json()
    suite.play({"steps": [{"toolCall": "_bash_", "id": "call_1", "arguments": [COMMAND]}]})
    events: list[Event] = []
    query_fields = {"chatId": uploaded["chatId"], "references": [uploaded["data"]]}
    async with suite.query("Sort it.", "react", **query_fields) as running:
        async for event in running:
            events.append(event)
            if event["type"] == "tool.start":
                suite.play({"steps": [{"content": ["Sorted."]}]})
    check_order(events)
    (upload,) = [event["upload"] for event in events if event["type"] == "request.upload"]
    assert (upload["name"], upload["mimeType"], upload["sizeBytes"]) == ("fruit.csv", "text/csv", 15)
    assert upload["sha256"] == uploaded["data"]["sha256"]
    (artifact,) = [event for event in events if event["type"] == "artifact.publish"]
    async with suite.http.get(suite.url + artifact["url"], headers={"Range": "bytes=0-5"}) as response:
        assert (response.status, await response.read()) == (206, b"apple,")
    assert (artifact["name"], artifact["mimeType"], artifact["sizeBytes"]) == ("sorted.csv", "text/csv", 15)
    assert "fruit.csv" in str(suite.requests()[-1]["messages"])


async def test_a_picture_in_an_answer_is_readable_through_both_facades(suite: Suite) -> None:
    encoded = io.BytesIO()
    Image.linear_gradient("L").resize((3000, 100)).save(encoded, format="PNG")
    picture = encoded.getvalue()
    url = f"data:image/png;base64,{base64.b64encode(picture).decode()}"
    frame = {"choices": [{"delta": {"images": [{"type": "image_url", "image_url": {"url": url}}]}}]}
    suite.play({"steps": [{"content": "A slope."}, {"raw": f"data: {json.dumps(frame)}\n\n"}]})
    request_body = {"model": "plain", "messages": [{"role": "user", "content": "Draw a slope."}]}
    async with behind_gateway(suite) as through:
        async with suite.query("Draw a slope.", "plain") as running:
            events = [event async for event in running]
        async with suite.http.post(f"{suite.url}/v1/chat/completions", json=request_body) as response:
            completed = await response.json()
        (artifact,) = [event for event in events if event["type"] == "artifact.publish"]
        for front in (suite, through):
            async with front.http.get(front.url + artifact["url"]) as response:
                assert (response.status, response.content_type) == (200, "image/png")
                assert await response.read() == picture
    check_order(events)
    assert (artifact["name"], artifact["sizeBytes"]) == ("image.png", len(picture))
    content = "".join(event["delta"] for event in events if event["type"] == "content.delta")
    assert content == f"A slope.\n\n![image.png]({artifact['url']})"
    text = completed["choices"][0]["message"]["content"]
    assert text.startswith("A slope.\n\n![image.png](/api/resource?chatId=")
