"""Commands against another server, with invalid settings, and with hostile text in their output."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.command_line import run
from tests.support.facade.scripted import CHAT, Script, answering, suite
from tests.support.programs import run_to_end


@asynccontextmanager
async def answering_json(body: bytes, status: str = "200 OK") -> AsyncGenerator[str]:
    """A server that gives this answer to every request; yields its address."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize("body", [b"{}", b'{"data": "x"}', b"sorry"])
@pytest.mark.parametrize("command", ["health", "agents list", "chats list", f"chats show {CHAT}", f"context {CHAT}"])
async def test_an_answer_of_another_form_is_reported_as_not_headrace(command: str, body: bytes) -> None:
    async with answering_json(body) as url:
        code, out, complaint = await run(*command.split(), url=url)
    expected_error = f"Error: what answers at {url} is not Headrace, or not of this version\n"
    assert (code, out, complaint.decode()) == (1, b"", expected_error)


@pytest.mark.parametrize("body", [b"<html>", b"", b"[]", b"{}", b'{"error": "no"}', b'{"message": "no"}'])
@pytest.mark.parametrize("status", ["404 Not Found", "413 Too Large", "502 Bad Gateway"])
@pytest.mark.parametrize("command", ["agents list", f"chats show {CHAT}", "ask hi"])
async def test_a_page_of_a_proxy_is_told_by_its_status(command: str, status: str, body: bytes) -> None:
    async with answering_json(body, status) as url:
        code, out, complaint = await run(*command.split(), url=url)
    assert (code, out) == (1, b"")
    assert complaint.decode() == f"Error: {url} answered {status[:3]}, not as Headrace does\n"


async def test_space_around_a_credential_or_address_is_stripped(tmp_path: Path) -> None:
    async with suite(tmp_path, Script(query=answering("seen"))) as facade:
        code, out, complaint = await run("ask", "hi", url=f" {facade.url}\n", HEADRACE_TOKEN=" abc\n")
    assert (code, out, complaint) == (0, b"seen\n", b"")


@pytest.mark.parametrize("token", ["ab\ncd", "ab’cd"])
async def test_an_invalid_credential_is_wrong_usage_and_is_not_printed(token: str) -> None:
    code, _, complaint = await run("agents", "list", url="http://127.0.0.1:1", HEADRACE_TOKEN=token)
    assert code == 2
    assert b"cannot be part of a credential" in complaint
    assert b"ab" not in complaint.partition(b"Error: ")[2].replace(b"printable", b"")


@pytest.mark.parametrize(
    "url",
    [
        *("127.0.0.1:8080", "wurst", "ftp://127.0.0.1", "http://", "http://a:b", "http://水" + "水" * 80),
        *("http://127.0.0.1:1/prefix", "http://127.0.0.1:1/a/", "http://127.0.0.1:1?x=1"),
    ],
)
async def test_an_invalid_address_or_one_with_a_path_is_wrong_usage(url: str) -> None:
    code, _, complaint = await run("agents", "list", url=url)
    assert code == 2
    assert f"{url!r} is not an address such as http://127.0.0.1:8080" in complaint.decode()


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        (b"a report 1%20.txt", "a report 1%20.txt"),
        ("水 'ü' (1); x=y.txt".encode(), "水 'ü' (1); x=y.txt"),
        (b"a\xff\r\n.txt", "a???.txt"),
    ],
)
async def test_an_uploaded_file_keeps_its_name(tmp_path: Path, name: bytes, stored: str) -> None:
    file = tmp_path / name.decode(errors="surrogateescape")
    file.write_text("hello")
    async with suite(tmp_path, Script(query=answering("seen"))) as facade:
        code, _, complaint = await run("ask", "--file", str(file), "hi", url=facade.url)
        assert [(start.name, data) for start, data in facade.tools.uploaded] == [(stored, b"hello")]
    assert (code, complaint) == (0, b"")


@pytest.mark.parametrize("user", ["ann:hunter2@", "hunter2@", ":hunter2@"])
async def test_a_credential_in_the_address_is_wrong_usage_and_not_printed(user: str) -> None:
    code, _, complaint = await run("agents", "list", url=f"http://{user}127.0.0.1:1", HEADRACE_TOKEN="abc")
    assert code == 2
    assert b"--token" in complaint
    assert b"hunter2" not in complaint


HOSTILE = "rm\x1b[2K\x1b]52;c;aGk=\x07\x9b1A\r\x08\x7f水"
SHOWN = r"rm\u001b[2K\u001b]52;c;aGk=\u0007\u009b1A \u0008\u007f水"
"""HOSTILE on one line, with control characters escaped."""


@pytest.mark.parametrize(
    ("command", "row", "shown"),
    [
        ("chats list", {"chatId": CHAT, "title": HOSTILE, "firstAgentKey": "a", "updatedAt": 0}, SHOWN),
        ("chats search x", {"chatId": CHAT, "title": "t", "excerpt": HOSTILE}, SHOWN),
        ("gates list", {"runId": "r", "gateId": "g", "agentKey": "a", "kind": "form", "toolName": "t",
                        "requester": "ann", "openedAt": 0, "reason": HOSTILE + "\n2\u202e1"}, rf"{SHOWN} 2\u202e1"),
        ("agents list", {"key": "a", "name": "a", "mode": "REACT", "description": HOSTILE, "tools": []}, SHOWN),
    ],
)  # fmt: skip
async def test_control_characters_in_listed_text_are_escaped(command: str, row: dict[str, object], shown: str) -> None:
    async with answering_json(json.dumps({"code": 0, "data": [row]}).encode()) as url:
        code, out, complaint = await run(*command.split(), url=url)
    assert (code, complaint) == (0, b"")
    assert shown in out.decode()


async def test_a_claim_holder_has_a_name_even_without_a_user_entry() -> None:
    program = (
        "import os\nfrom headrace.cli.commands.gates.group import name_holder\n"
        "if os.getuid() == 0:\n    os.setuid(54321)\nprint(name_holder())"
    )
    code, out, complaints = await run_to_end(sys.executable, "-c", program, env={})
    assert code == 0, complaints.decode()
    assert out.startswith(b"cli ")
