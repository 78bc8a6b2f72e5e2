"""Searching: all queries of a round at once, and the best pages of each read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from services.tools.errors import ToolFailed
from services.tools.web.page import Page
from services.tools.web.search import Hit
from services.tools.web.web import Web

HITS = 5
"""Of each query."""

PAGES = 2
"""Of those, so many are read whole; of the others the search engine's extract serves."""

PAGE_S = 12.0
"""For a page; one that takes longer is not waited for."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """What one query gave."""

    query: str
    hits: list[Hit]
    pages: dict[str, Page]
    """By the address of the hit."""

    failure: str = ""


async def gather(web: Web, queries: Sequence[str]) -> list[Gathered]:
    """Search for all queries together; results in the queries' order, whichever was first. A failure is a value."""
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(_search(web, query)) for query in queries]
    return [task.result() for task in running]


async def _search(web: Web, query: str) -> Gathered:
    try:
        hits = await web.search.find(query, HITS)
    except ToolFailed as failure:
        return Gathered(query, [], {}, str(failure))
    async with asyncio.TaskGroup() as group:
        running = {hit.url: group.create_task(_read(web, hit.url)) for hit in hits[:PAGES]}
    pages = {url: page for url, task in running.items() if (page := task.result())}
    return Gathered(query, hits, pages)


async def _read(web: Web, url: str) -> Page | None:
    """The page; None when it cannot be read, and its extract has to serve."""
    try:
        async with asyncio.timeout(PAGE_S):
            return await web.read(url)
    except (ToolFailed, TimeoutError):
        return None
