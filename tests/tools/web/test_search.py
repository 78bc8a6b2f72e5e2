"""web_search with both kinds of endpoint, over a real service."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from services.simulator.server import simulator
from services.tools.config import Config
from tests.support.tools.calls import list_sources, read_deltas, request
from tests.support.tools.suite import Serve
from tests.support.web_server import serving_web

SEARXNG = {"results": [{"url": "https://a.example/", "title": "A", "content": "about a", "engine": "x", "score": 1.5}]}
BING = {
    "_type": "SearchResponse",
    "webPages": {"value": [{"url": "https://b.example/", "name": "B", "snippet": "about b"}]},
}


@asynccontextmanager
async def endpoint(answer: Any, status: int = 200) -> AsyncGenerator[tuple[str, list[web.Request]]]:
    """Run a server that answers everything with `answer`; yield its URL and the requests it receives."""
    requests: list[web.Request] = []

    async def search(request: web.Request) -> web.Response:
        requests.append(request)
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        return web.Response(body=body, status=status, headers={"Location": "/elsewhere"} if status == 302 else {})

    async with asyncio.timeout(200), serving_web(search) as port:
        yield f"http://127.0.0.1:{port}", requests


async def search_web(serve: Serve, url: str, key: str = "", **arguments: Any) -> list[Any]:
    async with serve(None, search_url=url, search_key=key) as suite:
        return await read_deltas(suite, request("web_search", {"query": "water & mills", **arguments}))


@pytest.mark.parametrize("path", ["", "/", "/search", "/search?categories=general"])
async def test_searxng_is_queried_and_its_response_read(serve: Serve, path: str) -> None:
    async with endpoint(SEARXNG) as (url, requests):
        deltas = await search_web(serve, url + path, "k1")
    assert list_sources(deltas) == ["https://a.example/"]
    assert deltas[-1].result.result == "[1] A\nhttps://a.example/\nabout a"
    assert requests[0].path == "/search"
    assert (requests[0].query["q"], requests[0].query["format"]) == ("water & mills", "json")
    assert requests[0].headers["Authorization"] == "Bearer k1"


async def test_bing_is_queried_and_its_response_read(serve: Serve) -> None:
    async with endpoint(BING) as (url, requests):
        deltas = await search_web(serve, f"{url}/v7.0/search", "k1", count=3)
    assert deltas[-1].result.result == "[1] B\nhttps://b.example/\nabout b"
    assert (requests[0].path, requests[0].query["count"]) == ("/v7.0/search", "3")
    assert requests[0].headers["Ocp-Apim-Subscription-Key"] == "k1"


async def test_a_search_returns_the_requested_number_of_web_results(serve: Serve) -> None:
    results = [{"url": f"https://{number}.example/", "title": str(number), "content": None} for number in range(30)]
    odd = [{"url": None, "title": None}, {"title": "none"}, {"url": "javascript:alert(1)"}, {"url": 7}]
    async with endpoint({"results": [*odd, *results]}) as (url, _):
        assert len(list_sources(await search_web(serve, url))) == 5
        assert len(list_sources(await search_web(serve, url, count=2))) == 2


async def test_engines_that_do_not_answer_are_named_where_nothing_is_found(serve: Serve) -> None:
    """Or the model takes the web to have nothing."""
    failed = [["brave", "Suspended: too many requests"], ["google", "Suspended: CAPTCHA"]]
    async with endpoint({"results": [], "unresponsive_engines": failed}) as (url, _):
        nothing = await search_web(serve, url)
    async with endpoint(SEARXNG | {"unresponsive_engines": failed}) as (url, _):
        some = await search_web(serve, url)
    assert (nothing[-1].result.ok, nothing[-1].result.result) == (
        False,
        "nothing was found; search engines did not answer: brave (Suspended: too many requests), google (Suspended: "
        "CAPTCHA)",
    )
    assert some[-1].result.result == "[1] A\nhttps://a.example/\nabout a"


async def test_a_result_without_a_title_has_its_address(serve: Serve) -> None:
    async with endpoint({"results": [{"url": "https://a.example/", "title": None, "content": 7}]}) as (url, _):
        seen = await search_web(serve, url)
    assert seen[-1].result.result == "[1] https://a.example/\nhttps://a.example/"


async def test_a_search_without_hits_is_a_result(serve: Serve) -> None:
    async with endpoint({"results": []}) as (url, _):
        deltas = await search_web(serve, url)
    assert (deltas[-1].result.ok, deltas[-1].result.result) == (True, "nothing was found")


@pytest.mark.parametrize(
    ("answer", "status", "message"),
    [
        (b"<html>", 200, "known form"),
        ({"results": "none"}, 200, "known form"),
        ([], 200, "known form"),
        (b"\xff", 200, "known form"),
        (b" " * 6_000_000, 200, "larger than 5 MiB"),
        ({}, 403, "status 403; SearXNG needs `json` among search.formats in its settings.yml"),
        ({}, 429, "status 429"),
        ({}, 302, "status 302"),
    ],
)
async def test_an_invalid_search_endpoint_is_reported(serve: Serve, answer: Any, status: int, message: str) -> None:
    async with endpoint(answer, status) as (url, requests):
        deltas = await search_web(serve, url, "k1")
    assert not deltas[-1].result.ok
    assert message in deltas[-1].result.result
    assert len(requests) == 1, "the key goes nowhere else"


async def test_an_unreachable_search_endpoint_is_reported(serve: Serve) -> None:
    deltas = await search_web(serve, "http://127.0.0.1:1/search")
    assert "cannot be reached" in deltas[-1].result.result


async def test_the_simulated_web_can_be_searched(serve: Serve) -> None:
    async with asyncio.timeout(200), simulator() as sim:
        url = sim.base_url.replace("/v1", "/search")
        first, second = await search_web(serve, url), await search_web(serve, url)
    assert len(list_sources(first)) == 5
    assert first[-1].result == second[-1].result


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"search_url": "searx.example"}, "HEADRACE_TOOLS_SEARCH_URL: must begin with http"),
        ({"fetch_allow": "10.0.0.1/8"}, "HEADRACE_TOOLS_FETCH_ALLOW: '10.0.0.1/8'"),
    ],
)
def test_an_invalid_search_setting_is_named(settings: dict[str, str], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Config(**settings)  # pyright: ignore[reportArgumentType] - both are texts


def test_the_search_key_is_not_in_the_configs_repr() -> None:
    assert "secret-key" not in repr(Config(search_key="secret-key"))
