"""Uploads and resources over HTTP, through the facade and a real tools service."""

import asyncio
import json
import resource
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from services.runtime.process.config import ServerSettings
from services.runtime.rpc.field_rules import is_uuid
from services.tools.catalogue.catalogue import Catalogue
from services.tools.config import Config as ToolsConfig
from services.tools.sandbox.tiers import Sandbox
from services.tools.server import tool_server
from tests.support.facade.fronts import PEERS, Timing, embedded

CHAT = "22222222-2222-4222-8222-222222222222"
MIB = 1024 * 1024


@dataclass(frozen=True)
class Site:
    """A facade in front of a tools service."""

    http: aiohttp.ClientSession
    port: int
    workspaces: Path

    async def upload(self, data: Any, name: str = "a.txt", **fields: str) -> tuple[int, dict[str, Any]]:
        """Upload a file and return the status and the body."""
        form = aiohttp.FormData(quote_fields=False)
        form.add_field("file", data, filename=name)
        for field, value in fields.items():
            form.add_field(field, value)
        async with self.http.post("/api/upload", data=form) as response:
            return response.status, await response.json()

    async def get(self, path: str, *, verb: str = "GET", **headers: str) -> tuple[int, Any, bytes]:
        """Status, headers and body of a resource."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        where = {"chatId": CHAT, "path": path}
        async with self.http.request(verb, "/api/resource", params=where, headers=named) as response:
            return response.status, response.headers, await response.read()

    def left_over(self) -> list[Path]:
        return list((self.workspaces / ".incoming").iterdir())


@asynccontextmanager
async def site(folder: Path) -> AsyncGenerator[Site]:
    """Nothing inside may take longer than 30 s."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(300))
        listen = f"unix:{folder}/tools.sock"
        config = ToolsConfig(server=ServerSettings(listen=listen, drain_s=0), config_dir=folder, data_dir=folder)
        await stack.enter_async_context(tool_server(config, Sandbox("process"), Catalogue(folder / "tools")))
        url = await stack.enter_async_context(embedded(dict.fromkeys(PEERS, listen), Timing(drain_s=0.1)))
        http = await stack.enter_async_context(aiohttp.ClientSession(url))
        yield Site(http, int(url.rpartition(":")[2]), folder / "workspaces")


async def test_an_upload_returns_a_reference_for_the_query(tmp_path: Path) -> None:
    async with site(tmp_path) as files:
        status, body = await files.upload(b"1,2\n", "数 据.csv", chatId=CHAT, requestId="q-1")
        reference = body["data"]
        parts = urlsplit(reference["url"])
        async with files.http.get(f"{parts.path}?{parts.query}") as response:
            content = await response.read()
    assert (status, body["code"], body["msg"], body["chatId"]) == (200, 0, "success", CHAT)
    assert (reference["type"], reference["name"], reference["mimeType"]) == ("text", "数 据.csv", "text/csv")
    assert reference["sizeBytes"] == 4
    assert reference["meta"] == {"path": "uploads/数 据.csv"}
    assert content == b"1,2\n"


async def test_an_upload_without_a_chat_creates_one_and_fields_may_have_any_order(tmp_path: Path) -> None:
    async with site(tmp_path) as files:
        _, first = await files.upload(b"x")
        form = aiohttp.FormData({"chatId": first["chatId"]})
        form.add_field("file", b"y", filename="b")
        async with files.http.post("/api/upload", data=form) as response:
            second, in_header = await response.json(), response.headers["X-Chat-Id"]
    assert is_uuid(first["chatId"])
    assert first["chatId"] == second["chatId"] == in_header
    assert [*second] == ["code", "msg", "chatId", "data"], "the chat is met before the reference"


def form(*parts: tuple[str, str], end: str = "--B--\r\n") -> bytes:
    return "".join(
        f"--B\r\nContent-Disposition: form-data; {head}\r\n\r\n{body}\r\n" for head, body in parts
    ).encode() + (end.encode())


FILE = ('name="file"; filename="a.txt"', "text")
BAD_FORMS = [
    (form(), "file"),
    (form(('name="chatId"', CHAT)), "file"),
    (form(FILE, FILE), "file"),
    (form(FILE, ('name="chatId"', "../../x")), "start.chatId"),
    (form(FILE, ('name="chatId"', CHAT), ('name="chatId"', CHAT)), "chatId"),
    (form(FILE, ('name="chatid"', CHAT)), "chatid"),
    (form(FILE, ('name="requestId"', "x" * 5000)), "requestId"),
    (form(('name="file"; filename="../a"', "x")), "name"),
    (form(('name="file"', "x")), "start.name"),
    (form(FILE, end=""), "body"),
    (form(('name="file"; filename="@"', "x")).replace(b"@", b"\xff"), "file"),
    (
        form(('name="inner"', "x")).replace(b"\r\n\r\n", b"\r\nContent-Type: multipart/mixed; boundary=C\r\n\r\n"),
        "body",
    ),
    (b"no form at all", "body"),
    (b"", "body"),
]


@pytest.mark.parametrize(("body", "field"), BAD_FORMS)
async def test_a_bad_form_is_refused_by_field_and_leaves_nothing(tmp_path: Path, body: bytes, field: str) -> None:
    headers = {"Content-Type": "multipart/form-data; boundary=B"}
    async with site(tmp_path) as files:
        async with files.http.post("/api/upload", data=body, headers=headers) as response:
            answer = await response.json()
        assert (response.status, answer["error"]["code"]) == (400, "INVALID_REQUEST"), answer
        assert answer["error"]["details"]["field"] == field, answer
        while files.left_over():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("content_type", ["application/json", "multipart/mixed; boundary=B", "multipart/form-data"])
async def test_a_body_that_is_no_form_is_refused(tmp_path: Path, content_type: str) -> None:
    async with site(tmp_path) as files:
        response = await files.http.post("/api/upload", data=b"{}", headers={"Content-Type": content_type})
        assert (response.status, (await response.json())["code"]) == (400, 400)


async def endless(kind: bytes, size_bytes: int) -> AsyncIterator[bytes]:
    yield kind
    for _ in range(size_bytes // MIB):
        yield b" " * MIB


async def test_a_too_large_file_is_refused_while_it_is_sent(tmp_path: Path) -> None:
    async with site(tmp_path) as files:
        status, body = await files.upload(endless(b"text", 12 * MIB), chatId=CHAT)
        assert (status, body["error"]["code"]) == (400, "INVALID_REQUEST")
        assert "larger than 5 MiB" in body["msg"]
        assert not files.left_over()


async def test_a_form_with_a_too_large_content_length_is_refused_unread(tmp_path: Path) -> None:
    head = "POST /api/upload HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=B\r\n"
    async with site(tmp_path) as files:
        reader, writer = await asyncio.open_connection("127.0.0.1", files.port)
        writer.write(f"{head}Content-Length: {52 * MIB}\r\n\r\n".encode())
        assert (await reader.readline()).split()[1] == b"413"
        assert b"body: must not be larger than 53477376 bytes" in await reader.readuntil(b"}}")
        writer.close()


async def test_a_large_upload_and_download_are_not_buffered_whole(tmp_path: Path) -> None:
    async with site(tmp_path) as files:
        await files.upload(endless(b"%PDF-1.7 ", MIB), "warm", chatId=CHAT)
        before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        status, body = await files.upload(endless(b"%PDF-1.7 ", 49 * MIB), "b", chatId=CHAT)
        received = 0
        async with files.http.get(body["data"]["url"]) as response:
            async for chunk in response.content.iter_any():
                received += len(chunk)
        grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
    assert (status, received) == (200, 49 * MIB + 9)
    assert grown_kib < 24 * 1024  # client, facade and tools service together


async def test_a_caller_disconnecting_during_an_upload_leaves_no_file(tmp_path: Path) -> None:
    head = (
        "POST /api/upload HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=B\r\n"
        f'Content-Length: 99999\r\n\r\n--B\r\nContent-Disposition: form-data; name="chatId"\r\n\r\n{CHAT}\r\n'
        '--B\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\nhalf a'
    )
    async with site(tmp_path) as files:
        _, writer = await asyncio.open_connection("127.0.0.1", files.port)
        writer.write(head.encode() + b" " * 9000)
        while not files.left_over():
            await asyncio.sleep(0.01)
        writer.close()
        while files.left_over():
            await asyncio.sleep(0.01)
        assert not (files.workspaces / CHAT).exists()


NO_RANGES = (
    *("", "bytes=", "bytes=-", "bytes=-0", "bytes=9-5", "bytes=0-1,3-4", "items=0-1", "bytes=a-b", "bytes=+1-2"),
    *("bytes=1.0-2", "bytes=٣-٤", f"bytes={'9' * 30}-"),
)
"""Headers that name no single range of bytes: the whole is sent."""


async def test_a_resource_is_served_in_full_and_by_range(tmp_path: Path) -> None:
    data = bytes(range(256)) * 1000
    async with site(tmp_path) as files:
        await files.upload(data, "a.bin", chatId=CHAT)
        status, headers, body = await files.get("uploads/a.bin")
        assert (status, body, headers["Content-Length"], headers["Accept-Ranges"]) == (200, data, "256000", "bytes")
        etag = headers["ETag"]
        for range_header, start, end in (
            ("0-0", 0, 1),
            ("100-", 100, 256_000),
            ("-5", 255_995, 256_000),
            ("5-9", 5, 10),
            ("7-999999", 7, 256_000),
            ("-999999", 0, 256_000),
        ):
            status, headers, body = await files.get("uploads/a.bin", Range=f"bytes={range_header}")
            assert (status, body) == (206, data[start:end])
            assert headers["Content-Range"] == f"bytes {start}-{end - 1}/256000"
            assert headers["Content-Length"] == str(end - start)
        for odd in NO_RANGES:
            assert (await files.get("uploads/a.bin", Range=odd))[0] == 200, odd
        status, headers, body = await files.get("uploads/a.bin", Range="bytes=256000-")
        assert (status, headers["Content-Range"]) == (416, "bytes */256000")
        assert json.loads(body)["error"]["code"] == "OUT_OF_RANGE"
        for condition, status in ((etag, 206), ('"other"', 200), ("Fri, 20 Nov 2026 00:00:00 GMT", 200)):
            assert (await files.get("uploads/a.bin", Range="bytes=1-2", If_Range=condition))[0] == status
        assert (await files.get("uploads/a.bin", Range="bytes=999999-", If_Range='"other"'))[0] == 200
        for condition, status in ((etag, 304), ("*", 304), (f'"x", W/{etag}', 304), ('"x"', 200)):
            assert (await files.get("uploads/a.bin", If_None_Match=condition))[0] == status
        status, headers, body = await files.get("uploads/a.bin", verb="HEAD", Range="bytes=1-2")
        assert (status, headers["Content-Length"], headers["ETag"], body) == (200, "256000", etag, b"")
        assert (await files.get("uploads/a.bin"))[2] == data  # the connection is still in step


async def test_an_empty_resource_is_served_with_and_without_a_range(tmp_path: Path) -> None:
    async with site(tmp_path) as files:
        await files.upload(b"", "a", chatId=CHAT)
        assert (await files.get("uploads/a"))[::2] == (200, b"")
        assert (await files.get("uploads/a", Range="bytes=0-"))[::2] == (200, b"")


HARMLESS = "text/plain; charset=utf-8"
SHOWN: list[tuple[str, bytes, str, str]] = [
    ("a.html", b"<script>alert(1)</script>", "text/html", "attachment"),
    ("a.svg", b"<svg onload='alert(1)'/>", "image/svg+xml", "attachment"),
    ("a.xml", b"<?xml version='1.0'?><x/>", "application/xml", "attachment"),
    ("a.js", b"alert(1)", HARMLESS, "inline"),
    ("a.css", b"*{}", HARMLESS, "inline"),
    ("a.txt", b"<html><script>alert(1)</script>", HARMLESS, "inline"),
    ("a.json", b"{}", "application/json; charset=utf-8", "inline"),
    ("a.png", b"<html><script>", HARMLESS, "inline"),
    ("a.wasm", b"\0asm\1\0\0\0", "application/wasm", "attachment"),
    ("a.pdf", b"%PDF-1.7", "application/pdf", "inline"),
]


@pytest.mark.parametrize(("name", "data", "content_type", "disposition"), SHOWN)
async def test_a_resource_is_served_so_that_no_browser_executes_it(
    tmp_path: Path, name: str, data: bytes, content_type: str, disposition: str
) -> None:
    async with site(tmp_path) as files:
        await files.upload(data, name, chatId=CHAT)
        _, headers, body = await files.get(f"uploads/{name}")
    assert body == data
    assert headers["Content-Type"] == content_type
    assert headers["Content-Disposition"] == f"{disposition}; filename=\"{name}\"; filename*=UTF-8''{name}"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers.get("Content-Security-Policy") == (None if name == "a.pdf" else "default-src 'none'; sandbox")


async def test_a_file_name_cannot_inject_headers(tmp_path: Path) -> None:
    async with site(tmp_path) as files:
        folder = files.workspaces / CHAT / "outputs"
        folder.mkdir(parents=True)
        (folder / 'a"\r\nSet-Cookie: x=1; 水').write_text("x")
        status, headers, _ = await files.get('outputs/a"\r\nSet-Cookie: x=1; 水')
    assert status == 200
    assert "Set-Cookie" not in headers
    assert headers["Content-Disposition"] == (
        "inline; filename=\"a___Set-Cookie_ x=1_ _\"; filename*=UTF-8''a%22%0D%0ASet-Cookie%3A%20x%3D1%3B%20%E6%B0%B4"
    )


@pytest.mark.parametrize(
    ("query", "status"),
    [
        (f"chatId={CHAT}&path=uploads/none", 404),
        (f"chatId={CHAT}&path=%2e%2e/%2e%2e/secret", 400),
        (f"chatId={CHAT}&path=..%2f..%2fsecret", 400),
        (f"chatId={CHAT}&path=%252e%252e%252fsecret", 404),
        (f"chatId={CHAT}&path=/etc/passwd", 400),
        (f"chatId={CHAT}&path=/proc/self/root/etc/passwd", 400),
        (f"chatId={CHAT}&path=a%00b", 400),
        (f"chatId={CHAT}&path=uploads", 400),
        (f"chatId={CHAT}&path=%ff", 400),
        (f"chatId={CHAT}&path={'x' * 5000}", 400),
        (f"chatId={CHAT}", 400),
        ("path=uploads/a.txt", 400),
        ("chatId=../../&path=secret", 400),
        (f"chatId={CHAT}&path=uploads/a.txt&offset=1", 400),
        (f"chatId={CHAT}&path=uploads/a.txt&other=1", 400),
        ("chatId=33333333-3333-4333-8333-333333333333&path=uploads/a.txt", 404),
    ],
)
async def test_a_path_outside_the_chats_files_is_an_enveloped_failure(tmp_path: Path, query: str, status: int) -> None:
    (tmp_path / "secret").write_text("secret")
    async with site(tmp_path) as files:
        await files.upload(b"x", chatId=CHAT)
        async with files.http.get(f"/api/resource?{query}") as response:
            body = await response.json()
    assert (response.status, body["code"]) == (status, status)
    assert body["error"]["code"] in ("NOT_FOUND", "INVALID_REQUEST")


async def test_a_resource_truncated_while_sent_breaks_the_connection(tmp_path: Path) -> None:
    async with site(tmp_path) as files:
        await files.upload(endless(b"%PDF-", 40 * MIB), "a", chatId=CHAT)
        async with files.http.get("/api/resource", params={"chatId": CHAT, "path": "uploads/a"}) as response:
            await response.content.readany()
            (files.workspaces / CHAT / "uploads/a").write_bytes(b"short")
            with pytest.raises(aiohttp.ClientError):
                await response.read()
