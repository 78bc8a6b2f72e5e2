from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import msgspec
from yarl import URL

from services.tools.errors import ToolFailed
from services.tools.web.fetcher import ACCEPT_ENCODING, load_http_client, read_body

NOT_CONFIGURED = "no search endpoint is configured (HEADRACE_TOOLS_SEARCH_URL)"

FORBIDDEN_HINT = "; SearXNG needs `json` among search.formats in its settings.yml"

SEARCH_S = 15.0
HITS_MAX = 20
SNIPPET_CHARS_MAX = 1000
PIECE_BYTES = 64 * 1024

BING_PATH = "/v7.0/search"
"""Path of Bing, which has other requests and responses than SearXNG (Bing Web Search API v7)."""


@dataclass(frozen=True, slots=True)
class Hit:
    title: str
    url: str
    snippet: str


class _SearxngAnswer(msgspec.Struct, frozen=True):
    """https://docs.searxng.org/dev/search_api.html (2026-05); results of some engines have no address or title."""

    results: list[dict[str, Any]] = []
    unresponsive_engines: list[list[Any]] = []
    """Names of engines that did not answer, each with the reason."""


class _BingPages(msgspec.Struct, frozen=True):
    value: list[dict[str, Any]] = []


class _BingAnswer(msgspec.Struct, frozen=True):
    webPages: _BingPages = _BingPages()


@dataclass(frozen=True, slots=True)
class Search:
    url: str
    """Address of the endpoint; empty when none is configured."""

    key: str = field(default="", repr=False)

    async def find_hits(self, query: str, count: int) -> list[Hit]:
        """Search, best hit first. Raises ToolFailed."""
        if not self.url:
            raise ToolFailed(NOT_CONFIGURED)
        is_bing = URL(self.url).path.rstrip("/").endswith(BING_PATH)
        body = await self._get_body(self._make_request(query, count, is_bing=is_bing))
        try:
            if is_bing:
                results = msgspec.json.decode(body, type=_BingAnswer).webPages.value
                hits = _read_hits(results, "name", "snippet")
            else:
                answer = msgspec.json.decode(body, type=_SearxngAnswer)
                hits = _read_hits(answer.results, "title", "content")
                if failed := not hits and ", ".join(
                    f"{one[0]} ({one[-1]})" for one in answer.unresponsive_engines if one
                ):
                    raise ToolFailed(f"nothing was found; search engines did not answer: {failed}")
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ToolFailed("the search endpoint's answer is not in a known form") from error
        return hits[:count]

    def _make_request(self, query: str, count: int, *, is_bing: bool) -> tuple[URL, dict[str, str]]:
        url, headers = URL(self.url), {"Accept": "application/json", "Accept-Encoding": ACCEPT_ENCODING}
        if is_bing:
            headers |= {"Ocp-Apim-Subscription-Key": self.key} if self.key else {}
            return url.update_query(q=query, count=str(count), textDecorations="false"), headers
        headers |= {"Authorization": f"Bearer {self.key}"} if self.key else {}
        url = url if url.path.strip("/") else url / "search"
        return url.update_query(q=query, format="json"), headers

    async def _get_body(self, request: tuple[URL, dict[str, str]]) -> bytes:
        await load_http_client()
        import aiohttp

        url, headers = request
        try:
            # The operator's own address: not checked, and never left by a redirect, which would carry the key along.
            async with (
                asyncio.timeout(SEARCH_S),
                aiohttp.ClientSession(auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar()) as session,
                session.get(url, headers=headers, allow_redirects=False) as response,
            ):
                if response.status != 200:
                    hint = FORBIDDEN_HINT if response.status == 403 else ""
                    raise ToolFailed(f"the search endpoint answered with status {response.status}{hint}")
                pieces = response.content.iter_chunked(PIECE_BYTES)
                return await read_body(pieces, response.headers.get("Content-Encoding", ""))
        except TimeoutError as error:
            raise ToolFailed(f"the search endpoint did not answer within {SEARCH_S:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise ToolFailed("the search endpoint cannot be reached") from error


def _read_hits(results: list[dict[str, Any]], title: str, snippet: str) -> list[Hit]:
    """Return the results that have an address of the web."""
    hits = list[Hit]()
    for result in results:
        facts = {key: value if isinstance(value, str) else "" for key, value in result.items()}
        if (url := facts.get("url", "")).startswith(("http://", "https://")):
            hits.append(Hit(facts.get(title) or url, url, facts.get(snippet, "")[:SNIPPET_CHARS_MAX]))
    return hits
