"""Tools that send a request to an HTTP API, here a real one on this machine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote, unquote

import pytest
from aiohttp import web

from services.tools.catalogue.definitions import BadDefinition, parse_definitions
from services.tools.sandbox.tiers import Sandbox
from tests.support.tools.suite import Serve, Suite
from tests.support.web_server import serving_web

TOKEN = "tok-4711-secret"


async def echo(request: web.Request) -> web.Response:
    """Answer with everything that was received."""
    headers = {name.lower(): value for name, value in request.headers.items()}
    sent = {"method": request.method, "path": request.raw_path, "body": await request.text(), "headers": headers}
    match request.path:
        case "/moved":
            return web.Response(status=302, headers={"Location": "http://127.0.0.1:1/elsewhere"})
        case "/picture":
            return web.Response(body=b"\x89PNG", content_type="image/png")
        case "/missing":
            return web.json_response({"error": "no such ticket"}, status=404)
        case path if path.startswith("/text/"):
            kind = {"Content-Type": unquote(path.removeprefix("/text/"))}
            return web.Response(
                body="Größe".encode("utf-8" if "application/" in unquote(path) else "cp1252"), headers=kind
            )
        case "/empty":
            return web.Response(status=204)
        case _:
            return web.json_response(sent)


def define(url: str, *required: str, **fields: Any) -> dict[str, Any]:
    properties = {name: {} for name in (*required, "fields", "note")}
    request = {"url": url, **fields}
    parameters = {"type": "object", "properties": properties, "required": [*required]}
    return {"name": "api", "description": "An API", "parameters": parameters, "effect": "read", "request": request}


@asynccontextmanager
async def serving(serve: Serve, path: str, *required: str, **fields: Any) -> AsyncGenerator[Suite]:
    """Run a service with a tool for the path of an API. No sandbox works, as on some machines with authentication."""
    async with serving_web(echo) as port, serve(Sandbox(None), env={"DESK_TOKEN": TOKEN, "EMPTY": ""}) as suite:
        tool = define(f"http://127.0.0.1:{port}{path}", *required, **fields)
        (suite.definitions / "a.backend").write_text(json.dumps({"tools": [tool]}))
        await asyncio.to_thread(suite.catalogue.reload)
        yield suite


async def test_arguments_fill_the_path_and_the_query(serve: Serve) -> None:
    async with serving(serve, "/tickets/{id}?v=1", "id") as suite:
        _, outcome = await suite.execute("api", '{"id": "a/b?c#d %2e", "fields": ["x", "y&z"], "note": 7}')
    assert outcome.ok
    sent = json.loads(outcome.result)
    assert (sent["method"], sent["body"]) == ("GET", "")
    assert sent["path"] == "/tickets/a%2Fb%3Fc%23d%20%252e?v=1&fields=x&fields=y%26z&note=7"


async def test_a_path_argument_may_have_any_name_and_be_a_list(serve: Serve) -> None:
    async with serving(serve, "/users/{user-id}/tickets({ids})", "user-id", "ids") as suite:
        _, outcome = await suite.execute("api", '{"user-id": "水", "ids": [1, 2.0, "a/b"], "note": 3.0}')
        _, empty = await suite.execute("api", '{"user-id": "a", "ids": []}')
    assert json.loads(outcome.result)["path"] == "/users/%E6%B0%B4/tickets(1,2,a%2Fb)?note=3"
    assert (empty.ok, "ids: '' cannot be a part of a path" in empty.result) == (False, True)


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain",
        "text/plain; charset=idna",
        "text/csv; charset=windows-1252",
        "application/json",
        "application/octet-stream",
        "application/x-yaml",
    ],
)
async def test_a_textual_response_is_decoded_whatever_its_declared_type(serve: Serve, kind: str) -> None:
    async with serving(serve, f"/text/{quote(kind, safe='')}") as suite:
        _, outcome = await suite.execute("api")
    assert (outcome.ok, outcome.result) == (True, "Größe")


async def test_arguments_become_a_json_body_for_methods_with_a_body(serve: Serve) -> None:
    async with serving(serve, "/tickets/{id}/notes", "id", method="POST") as suite:
        _, outcome = await suite.execute("api", '{"id": 7, "note": "wärmer"}')
    sent = json.loads(outcome.result)
    assert (sent["method"], sent["path"], json.loads(sent["body"])) == ("POST", "/tickets/7/notes", {"note": "wärmer"})
    assert sent["headers"]["content-type"] == "application/json"


@pytest.mark.parametrize("value", ["", ".", ".."])
async def test_an_argument_cannot_leave_its_place_in_the_path(serve: Serve, value: str) -> None:
    async with serving(serve, "/tickets/{id}/notes", "id") as suite:
        _, outcome = await suite.execute("api", json.dumps({"id": value}))
    assert not outcome.ok
    assert "id" in outcome.result


async def test_a_credential_reaches_the_api_and_nobody_else(serve: Serve) -> None:
    headers = {"Authorization": "Bearer env:DESK_TOKEN", "X-Team": "mill"}
    async with serving(serve, "/tickets", headers=headers) as suite:
        pieces, outcome = await suite.execute("api")
    sent = json.loads(outcome.result)
    assert sent["headers"]["authorization"] == "Bearer ***"  # the API repeats what it was sent
    assert sent["headers"]["x-team"] == "mill"
    assert TOKEN not in f"{pieces} {outcome}"


async def test_a_credential_file_is_read_at_each_call(serve: Serve, tmp_path: Any) -> None:
    secret = tmp_path / "token"
    async with serving(serve, "/tickets", headers={"X-Key": f"file:{secret}"}) as suite:
        _, missing = await suite.execute("api")
        secret.write_text("first-key\n")
        _, outcome = await suite.execute("api")
    assert not missing.ok
    assert str(secret) in missing.result
    assert json.loads(outcome.result)["headers"]["x-key"] == "***"


@pytest.mark.parametrize("name", ["UNSET_TOKEN", "EMPTY"])
async def test_a_missing_credential_is_named(serve: Serve, name: str) -> None:
    async with serving(serve, "/tickets", headers={"Authorization": f"env:{name}"}) as suite:
        _, outcome = await suite.execute("api")
    assert not outcome.ok
    assert name in outcome.result
    assert ".env" in outcome.result


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("/missing", 'HTTP 404\n{"error": "no such ticket"}'),
        ("/moved", "HTTP 302 and redirects"),
        ("/picture", "image/png, which is not text"),
    ],
)
async def test_an_unsuccessful_response_is_a_failed_result(serve: Serve, path: str, problem: str) -> None:
    async with serving(serve, path) as suite:
        _, outcome = await suite.execute("api")
    assert not outcome.ok
    assert problem in outcome.result


async def test_a_response_without_content_is_reported_as_such(serve: Serve) -> None:
    async with serving(serve, "/empty") as suite:
        _, outcome = await suite.execute("api")
    assert (outcome.ok, outcome.result) == (True, "(HTTP 204, no content)")


async def test_an_api_that_does_not_listen_is_a_failed_result(serve: Serve) -> None:
    async with serve(Sandbox(None)) as suite:
        (suite.definitions / "a.backend").write_text(json.dumps({"tools": [define("http://127.0.0.1:1/")]}))
        await asyncio.to_thread(suite.catalogue.reload)
        _, outcome = await suite.execute("api")
    assert (outcome.ok, outcome.result) == (False, "the server cannot be reached")


@pytest.mark.parametrize(
    ("url", "fields", "problem"),
    [
        ("ftp://desk.example/", {}, "request.url: only http and https"),
        ("https://{host}/a", {}, "request.url: only the path has"),
        ("https://desk.example/a?q={host}", {}, "request.url: only the path has"),
        ("https://me:secret@desk.example/", {}, "request.url: a URL with a user name"),
        ("https://desk.example/#a", {}, "request.url: a fragment"),
        ("https://desk.example/{id}", {}, "request.url: ['id'] must be among the required parameters"),
        ("https://desk.example/", {"headers": {"Host": "other.example"}}, "request.headers: ['Host'] follow"),
        ("https://desk.example/", {"headers": {"A b": "c"}}, "request.headers"),
        ("https://desk.example/", {"headers": {"A": "b\nC: d"}}, "request.headers.A"),
        ("https://desk.example/", {"method": "HEAD"}, "request.method"),
        ("https://desk.example/", {"body": {}}, "request.body"),
    ],
)
def test_an_invalid_request_definition_is_refused_with_its_field(
    url: str, fields: dict[str, Any], problem: str
) -> None:
    with pytest.raises(BadDefinition) as refused:
        parse_definitions({"tools": [define(url, "host", **fields)]}, "backend")
    assert problem in str(refused.value)


def test_a_tool_has_either_a_command_or_a_request() -> None:
    with pytest.raises(BadDefinition, match="not both"):
        parse_definitions({"tools": [define("https://desk.example/") | {"command": ["true"]}]}, "backend")
    with pytest.raises(BadDefinition, match="only a backend tool has it"):
        parse_definitions({"tools": [define("https://desk.example/")]}, "frontend")
