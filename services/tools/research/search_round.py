from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from services.tools.errors import ToolFailed
from services.tools.web.page import Page
from services.tools.web.search import Hit
from services.tools.web.web import Web

HITS = 5

PAGES = 2
"""Hits of a query that are read whole."""

PAGE_S = 12.0


@dataclass(frozen=True, slots=True)
class QueryResult:
    query: str
    hits: list[Hit]
    pages: dict[str, Page]

    failure: str = ""


async def search_all(web: Web, queries: Sequence[str]) -> list[QueryResult]:
    """Searches for all queries; results keep their order, and a failure is a value."""
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(_search_query(web, query)) for query in queries]
    return [task.result() for task in running]


async def _search_query(web: Web, query: str) -> QueryResult:
    try:
        hits = await web.search.find_hits(query, HITS)
    except ToolFailed as failure:
        return QueryResult(query, [], {}, str(failure))
    async with asyncio.TaskGroup() as group:
        running = {hit.url: group.create_task(_read_page(web, hit.url)) for hit in hits[:PAGES]}
    pages = {url: page for url, task in running.items() if (page := task.result())}
    return QueryResult(query, hits, pages)


async def _read_page(web: Web, url: str) -> Page | None:
    try:
        async with asyncio.timeout(PAGE_S):
            return await web.read_url(url)
    except (ToolFailed, TimeoutError):
        return None
