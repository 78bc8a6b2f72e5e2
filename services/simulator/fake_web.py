"""A small invented web for search tools: SearXNG's `/search`, and pages under `/pages`.

The same query or address always gives the same page.
"""

from __future__ import annotations

import hashlib
from html import escape
from urllib.parse import quote

import orjson
from aiohttp import web

HITS = 5
QUERY_CHARS_MAX = 200

KINDS = (
    "An introduction to {}",
    "{}: the facts",
    "A short history of {}",
    "What people ask about {}",
    "{} in practice",
)
"""Titles of the results, best first."""

SENTENCES = (
    "There are {} reports about {}, the first of them from {}.",
    "Most of them agree on the outline, and {} of them give figures.",
    "The largest collection about {} was made in {}.",
    "Nobody has counted the exceptions; estimates go up to {} percent.",
)


def add_routes(app: web.Application) -> None:
    app.router.add_get("/search", _handle_search)
    app.router.add_get("/pages/{number}/{subject}", _handle_page)


async def _handle_search(request: web.Request) -> web.Response:
    query = " ".join(request.query.get("q", "").split())[:QUERY_CHARS_MAX]
    if request.query.get("format") != "json" or not query:
        raise web.HTTPBadRequest(text="q and format=json are expected")
    hits = [_make_hit(f"{request.scheme}://{request.host}", query, number) for number in range(HITS)]
    answer = {"query": query, "number_of_results": len(hits), "results": hits}
    return web.Response(body=orjson.dumps(answer), content_type="application/json")


async def _handle_page(request: web.Request) -> web.Response:
    subject, number = request.match_info["subject"][:QUERY_CHARS_MAX], request.match_info["number"]
    if not number.isdecimal() or int(number) >= HITS:
        raise web.HTTPNotFound
    title = escape(KINDS[int(number)].format(subject))
    paragraphs = "".join(f"<p>{escape(text)}</p>\n" for text in _write_sentences(subject, int(number)))
    body = f"<!doctype html><html><head><title>{title}</title></head><body><nav>Home</nav><article><h1>{title}</h1>\n"
    return web.Response(text=f"{body}{paragraphs}</article></body></html>", content_type="text/html")


def _make_hit(origin: str, query: str, number: int) -> dict[str, str]:
    url = f"{origin}/pages/{number}/{quote(query, safe='')}"
    return {
        "url": url,
        "title": KINDS[number].format(query),
        "content": _write_sentences(query, number)[0],
        "engine": "simulator",
    }


def _write_sentences(subject: str, number: int) -> list[str]:
    dice = hashlib.sha256(f"{number}\n{subject.casefold()}".encode()).digest()
    facts = (
        (dice[0] % 90 + 10, subject, 1950 + dice[1] % 70),
        (dice[2] % 9 + 1,),
        (subject, 1970 + dice[3] % 50),
        (dice[4] % 40 + 1,),
    )
    return [sentence.format(*values) for sentence, values in zip(SENTENCES, facts, strict=True)]
