"""Calls an HTTP API for a tool: one host, which the definition fixes, with credentials that neither model nor log sees.

The model chooses only arguments: they fill the path's `{names}`, and the rest becomes the query or the body. Redirects
are not followed, because they could lead to another host.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Mapping
from typing import Annotated, Any, Literal
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator
from yarl import URL

from headrace.v1 import tools_pb2
from services.runtime.files.named_secrets import read_secret
from services.runtime.net.allow_list import AllowList
from services.runtime.net.targets import (
    URL_CHARS_MAX,
    Target,
    TargetRefused,
    checked_addresses,
    parse_target,
    resolve_name,
)
from services.runtime.telemetry.masking import mask_values
from services.tools.errors import ToolFailed
from services.tools.toolkit.tool import ToolContext, make_result
from services.tools.web.charsets import decode_answer, is_utf8
from services.tools.web.fetcher import ACCEPT_ENCODING, PIECE_BYTES, fetch_errors, load_http_client, read_body

TIMEOUT_S = 120.0
"""Default timeout of a call, equal to toolTimeoutMs of the default budget."""

FAILURE_CHARS_MAX = 4000
"""Shown characters of an error's body, which may be a page for people."""

OWN_HEADERS = frozenset(
    {"host", "content-length", "content-type", "connection", "transfer-encoding", "accept-encoding"}
)
"""Headers that follow from the request."""

PLACEHOLDER = re.compile(r"\{([^{}/?#]+)\}")
"""An argument's name, which may have any letter: many APIs write {user-id}."""

WHOLE_MAX = 2.0**53
"""Up to it, each whole number has a float of its own."""

TEXT = re.compile(r"text/.*|application/(.*\+)?(json|xml|yaml|javascript|x-ndjson)|")

_SECRET = re.compile(r"(?:(?P<scheme>[\w-]+) )?(?P<place>(?:env|file):\S+)")

HeaderName = Annotated[str, StringConstraints(pattern=r"^[\w!#$%&'*+.^`|~-]+$", max_length=128)]
HeaderValue = Annotated[str, StringConstraints(pattern=r"^[\x20-\x7e]*$", max_length=8192)]


class ApiRequest(BaseModel):
    """The request that a tool sends, without a command."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "GET"
    """HTTP method. With GET and DELETE, arguments that the path does not name become the query; with the others, a JSON
    body."""

    url: Annotated[str, StringConstraints(max_length=URL_CHARS_MAX)]
    """Address, http or https; the only host that the tool reaches, which may be in your own network. `{name}` in its
    path becomes that argument, which `parameters` must require."""

    headers: dict[HeaderName, HeaderValue] = Field(default={}, max_length=32)
    """Headers in addition to those that HTTP needs. `env:NAME` takes the value from the tools service's environment,
    `file:/path` from a file, read at each call; a word before it is kept: `Bearer env:NAME`. Results mask these
    values."""

    @property
    def placeholders(self) -> set[str]:
        return set(PLACEHOLDER.findall(self.url))

    @field_validator("url")
    @classmethod
    def _check_url(cls, value: str) -> str:
        try:
            url = _parse_url(PLACEHOLDER.sub("x", value)).url
        except TargetRefused as error:
            raise ValueError(str(error)) from error
        if PLACEHOLDER.search(value.partition("://")[2].partition("/")[0] + value.partition("?")[2]):
            raise ValueError("only the path has {names}: other arguments become the query or the body by themselves")
        if url.raw_fragment:
            raise ValueError("a fragment (#…) is not sent")
        return value

    @field_validator("headers")
    @classmethod
    def _check_headers(cls, value: dict[str, str]) -> dict[str, str]:
        if own := sorted(name for name in value if name.lower() in OWN_HEADERS):
            raise ValueError(f"{own} follow from the request")
        return value


async def send_request(context: ToolContext, request: ApiRequest) -> AsyncGenerator[tools_pb2.ToolDelta]:
    """Send the request and return the text of its response. Raises ToolFailed."""
    headers, secrets = find_headers(request, context.env)
    target, body = _fill_request(request, context.arguments)
    timeout_s = context.timeout_s or TIMEOUT_S
    await load_http_client()
    from services.runtime.net.pinned_connection import pinned_session

    with fetch_errors(timeout_s):
        async with asyncio.timeout(timeout_s):
            addresses = await checked_addresses(target, resolve_name, _allow_host(target.url))
            async with (
                pinned_session(addresses) as session,
                session.request(
                    request.method, target.url, headers=headers, data=body, allow_redirects=False
                ) as response,
            ):
                pieces = response.content.iter_chunked(PIECE_BYTES)
                content = await read_body(pieces, response.headers.get("Content-Encoding", ""))
    media_type = response.content_type.lower() if content and "Content-Type" in response.headers else ""
    if not (TEXT.fullmatch(media_type) or is_utf8(content)):
        raise ToolFailed(f"the API answered with {media_type}, which is not text")
    text = mask_values(await asyncio.to_thread(decode_answer, content, response.charset), *secrets)
    if 200 <= response.status < 300:
        yield make_result(text or f"(HTTP {response.status}, no content)")
        return
    where = " and redirects, which is not followed: name that address in `url`" if 300 <= response.status < 400 else ""
    yield make_result(f"HTTP {response.status}{where}\n{text[:FAILURE_CHARS_MAX]}".rstrip(), ok=False)


def find_headers(request: ApiRequest, env: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return all headers, and the secrets among their values. Raises ToolFailed if a secret is missing."""
    headers = {"user-agent": "headrace", "accept": "application/json, text/*;q=0.8", "accept-encoding": ACCEPT_ENCODING}
    secrets: list[str] = []
    for name, value in request.headers.items():
        if (match := _SECRET.fullmatch(value)) is not None:
            secret = _find_secret(match["place"], env)
            secrets.append(secret)
            value = f"{match['scheme']} {secret}" if match["scheme"] else secret
        headers[name.lower()] = value
    if request.method not in ("GET", "DELETE"):
        headers["content-type"] = "application/json"
    return headers, secrets


def _find_secret(name: str, env: Mapping[str, str]) -> str:
    secret = read_secret(name, env)
    if not secret and name.startswith("env:"):
        name = f"{name.removeprefix('env:')} is not set in the environment of the tools service"
        raise ToolFailed(f"the tool lacks its credential: {name}; `headrace up` reads it from .env, too")
    if not secret:
        raise ToolFailed(f"the tool lacks its credential: {name} is missing, empty or cannot be read")
    if not (secret.isascii() and secret.isprintable()):
        raise ToolFailed(f"the tool's credential {name} has a character that no header may have")
    return secret


def _fill_request(request: ApiRequest, arguments: Mapping[str, Any]) -> tuple[Target, bytes | None]:
    """Return the address with the arguments that belong there, and the body."""
    placeholders = request.placeholders
    rest = {name: value for name, value in arguments.items() if name not in placeholders}
    values = {name: [_format(item) for item in _list(arguments.get(name))] for name in placeholders}
    # `.` and `..` would change the path around them.
    segments = {name: ",".join(quote(text, safe="") for text in texts) for name, texts in values.items()}
    if bad := [f"{name}: {text!r}" for name, text in segments.items() if text in ("", ".", "..")]:
        raise ToolFailed(f"invalid arguments: {bad[0]} cannot be a part of a path")
    try:
        target = _parse_url(PLACEHOLDER.sub(lambda found: segments[found[1]], request.url))
    except TargetRefused as error:
        raise ToolFailed(f"invalid arguments: {error}") from error
    if request.method not in ("GET", "DELETE"):
        return target, json.dumps(rest, ensure_ascii=False).encode()
    query: list[tuple[str, str]] = []
    for name, value in rest.items():
        query += [(name, _format(item)) for item in _list(value) if item is not None]
    return Target(target.url.extend_query(query), target.host, target.port, target.address), None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _format(value: Any) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < WHOLE_MAX:
        value = int(value)  # to JSON Schema, 7.0 is an integer, too
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _parse_url(text: str) -> Target:
    """Raises TargetRefused."""
    try:
        allow = _allow_host(URL(text))
    except ValueError as error:
        raise TargetRefused(f"not a URL: {error}") from error
    return parse_target(text, allow)


def _allow_host(url: URL) -> AllowList:
    """Return a list of the host alone: its operator named it, so it may be in any network, at any port."""
    return AllowList(frozenset({((url.raw_host or "").lower().rstrip("."), None)}))
