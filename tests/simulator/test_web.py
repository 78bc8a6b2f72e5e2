"""The simulated web, and the simulated model's calls and answers that use it."""

import asyncio
from typing import Any

import aiohttp
import orjson
import pytest

from services.simulator.model.builtin import build_reply
from services.simulator.script import Content, ToolCall
from services.simulator.server import simulator
from tests.support.model_requests import make_request

WEB = {
    "web_search": frozenset({"query"}),
    "fetch_web": frozenset({"url"}),
    "deep_search": frozenset({"query", "maxLoops"}),
    "report": frozenset({"task", "fileType"}),
}


def find_call(text: str) -> tuple[str, Any]:
    call = next(step for step in build_reply(make_request(text, WEB)).steps if isinstance(step, ToolCall))
    return call.tool_call, orjson.loads("".join(call.arguments))


def write_answer(text: str, system: str) -> str:
    return "".join(
        "".join(step.content)
        for step in build_reply(make_request(text, system=system)).steps
        if isinstance(step, Content)
    )


async def test_a_search_always_returns_the_same_pages_and_they_can_be_read() -> None:
    async with asyncio.timeout(100), simulator() as sim, aiohttp.ClientSession() as http:
        url = sim.base_url.replace("/v1", "/search")
        answers = [await (await http.get(url, params={"q": "水车 mills", "format": "json"})).json() for _ in range(2)]
        hits = answers[0]["results"]
        page = await (await http.get(hits[1]["url"])).text()
        statuses = [(await http.get(address)).status for address in (url, hits[0]["url"].replace("/0/", "/9/"))]
    assert answers[0] == answers[1]
    assert len({hit["url"] for hit in hits}) == 5
    assert f"<title>{hits[1]['title']}</title>" in page
    assert hits[1]["content"] in page
    assert statuses == [400, 404]


@pytest.mark.parametrize(
    ("text", "tool", "arguments"),
    [
        ("Search for water mills", "web_search", {"query": "water mills"}),
        ("Read up on water mills", "web_search", {"query": "water mills"}),
        ("搜索水车", "web_search", {"query": "搜索水车"}),
        ("What does https://a.example/x say?", "fetch_web", {"url": "https://a.example/x"}),
        ("Research water mills", "deep_search", {"query": "water mills"}),
        ("Write a report", "report", {"task": "Write a report", "fileType": "html"}),
        ("Make slides of it", "report", {"task": "Make slides of it", "fileType": "ppt"}),
        ("I need a PDF", "report", {"task": "I need a PDF", "fileType": "pdf"}),
    ],
)
def test_a_question_calls_the_matching_tool(text: str, tool: str, arguments: dict[str, str]) -> None:
    assert find_call(text) == (tool, arguments)


def test_a_tools_own_question_is_answered_in_the_requested_form() -> None:
    assert orjson.loads(write_answer("Question: mills?", "Answer with a JSON array.")) == ["mills", "history of mills"]
    assert orjson.loads(write_answer("Question: mills?", "Answer with a JSON object.")) == {"enough": True}
    report = write_answer(
        "Question: mills?\n\nDocuments:\n\n[1] One\nu\n\n[2] Two\n", "You write a report in Markdown."
    )
    assert report.startswith("# mills\n")
    assert "- Two [2]" in report
