"""Chats as MCP resources: read from a cursor, and subscribed to."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.sse import SseReader
from headrace.v1 import agent_pb2, memory_pb2
from services.facade.mcp_server.resources import META_SUBSCRIPTION
from services.facade.mcp_server.run_view import RESOURCES
from tests.support.facade.followed import follow_from, script_chat
from tests.support.facade.mcp import HEADERS, ask_modern, post
from tests.support.facade.scripted import CHAT, Suite, suite
from tests.support.timing import within

URI = f"{RESOURCES}{CHAT}"


@asynccontextmanager
async def serve(folder: Path) -> AsyncGenerator[Suite]:
    """Run a facade whose memory has the whole chat."""
    whole = follow_from("")
    async with suite(folder, script_chat("mcp")) as facade:
        facade.memory.chat.CopyFrom(
            memory_pb2.GetChatResponse(
                chat_id=CHAT, events=[follow_delta.delta for follow_delta in whole], cursor=whole[-1].cursor
            )
        )
        yield facade


def listen(*uris: Any) -> tuple[dict[str, Any], dict[str, str]]:
    return ask_modern("subscriptions/listen", "", notifications={"resourceSubscriptions": [*uris]})


async def test_reading_a_chat_returns_the_events_after_the_cursor(tmp_path: Path) -> None:
    whole = follow_from("")
    async with serve(tmp_path) as facade:
        for cursor, later in (("", whole), (whole[-3].cursor, whole[-2:]), (whole[-1].cursor, [])):
            facade.script.follows = [[*later, *follow_from("10.1")]]
            uri = f"{URI}?cursor={cursor}"
            body, headers = ask_modern("resources/read", uri, uri=uri)
            [content] = (await post(facade, body, **headers))[1]["result"]["contents"]
            news = json.loads(content["text"])
            assert [item["cursor"] for item in news["events"]] == [item.cursor for item in later]
            assert news["cursor"] == whole[-1].cursor
    cursors = [item.cursor for item in facade.script.requests if isinstance(item, agent_pb2.FollowRequest)]
    assert cursors == ["", whole[-3].cursor]


async def test_a_subscribed_client_is_notified_of_a_chat_update(tmp_path: Path) -> None:
    body, headers = listen(URI)
    given = HEADERS | {name.replace("_", "-"): value for name, value in headers.items()}
    async with serve(tmp_path) as facade:
        facade.script.follows = [follow_from("10.1")]
        reader, messages = SseReader(), list[Any]()
        async with within(50), facade.http.post("/mcp", json=body, headers=given) as response:
            async for chunk in response.content.iter_any():
                messages += [json.loads(frame.data) for frame in reader.feed(chunk)]
                if len(messages) == 2:
                    break
    meta = {META_SUBSCRIPTION: body["id"]}
    assert [(request["method"], request["params"]) for request in messages] == [
        (
            "notifications/subscriptions/acknowledged",
            {"notifications": {"resourceSubscriptions": [URI]}, "_meta": meta},
        ),
        ("notifications/resources/updated", {"uri": URI, "_meta": meta}),
    ]
    [followed] = [request for request in facade.script.requests if isinstance(request, agent_pb2.FollowRequest)]
    assert followed.cursor == follow_from("")[-1].cursor


@pytest.mark.parametrize("uris", [["x"], [f"{URI}/files/a"], [1], [URI] * 17])
async def test_subscribing_to_anything_but_a_chat_is_refused(tmp_path: Path, uris: list[Any]) -> None:
    body, headers = listen(*uris)
    async with serve(tmp_path) as facade:
        assert (await post(facade, body, **headers))[1]["error"]["code"] == -32602


@pytest.mark.parametrize("cursor", ["x", "1", "1.2.3"])
async def test_a_malformed_cursor_is_refused(tmp_path: Path, cursor: str) -> None:
    uri = f"{URI}?cursor={cursor}"
    body, headers = ask_modern("resources/read", uri, uri=uri)
    async with serve(tmp_path) as facade:
        assert (await post(facade, body, **headers))[1]["error"]["code"] == -32602
