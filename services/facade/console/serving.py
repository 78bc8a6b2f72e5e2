"""Serves the console's files at `/` and `/console/`, read once at startup.

The page shows text from models and tools, so its policy allows only our own scripts and styles and no markup
from strings (Trusted Types). Tool views are separate pages in a frame without an origin.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

from aiohttp import web

from services.facade.console.contract import encode_contract

STATIC = Path(__file__).parent / "static"

TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "json": "application/json",
    "svg": "image/svg+xml",
}

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; frame-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)

FRAME_POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
    "font-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
"""A view may run scripts and talk to the page around it, but it cannot reach any server, including this one."""

NO_CONNECTIONS = "()"
"""Connection-Allowlist of a view. It closes two channels that the policy does not cover, WebRTC and connections
that browsers open ahead of a refused navigation. https://wicg.github.io/connection-allowlists/ (Chromium 152)
"""

FRAME = "frame.html"

FileHandler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]


def add_routes(application: web.Application) -> None:
    application.router.add_get("/console/contract.json", _make_handler("contract.json", encode_contract()))
    for file in STATIC.rglob("*.*"):
        path = file.relative_to(STATIC).as_posix()
        route = "/" if path == "index.html" else f"/console/{path}"
        application.router.add_get(route, _make_handler(path, file.read_bytes()))


def _make_handler(name: str, body: bytes) -> FileHandler:
    headers = {
        "Content-Type": TYPES[name.rpartition(".")[2]],
        "Content-Security-Policy": FRAME_POLICY if name == FRAME else PAGE_POLICY,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cache-Control": "no-cache",  # revalidated by ETag: modules must match
        "Vary": "Accept-Encoding",
    }
    if name == FRAME:
        headers["Connection-Allowlist"] = NO_CONNECTIONS
    tag = hashlib.sha256(body).hexdigest()[:32]
    packed = gzip.compress(body, mtime=0)

    async def answer(request: web.Request) -> web.StreamResponse:
        if any(known.value in ("*", tag) for known in request.if_none_match or ()):
            response = web.Response(status=304, headers=headers)
        elif "gzip" in request.headers.get("Accept-Encoding", ""):
            response = web.Response(body=packed, headers=headers | {"Content-Encoding": "gzip"})
        else:
            response = web.Response(body=body, headers=headers)
        response.etag = tag
        return response

    return answer
