"""Which servers a delivery may reach: forbidden addresses, names that change, redirects, and servers without an end."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from services.memory.webhooks.sender import Answer, Sender
from services.runtime.net.allow_list import AllowList, parse_allow_list
from tests.support.authority import Authority
from tests.support.webhook_receiver import Receiver, receiving, resolve_here

BODY, HEADERS = b"{}", {"webhook-id": "1"}


def resolving(*answers: list[str]) -> Callable[[str], Awaitable[list[str]]]:
    """Return a resolver that gives each answer once, and then repeats the last."""
    asked = iter(answers)
    last = answers[-1]

    async def resolve(name: str) -> list[str]:
        return next(asked, last)

    return resolve


async def send(receiver: Receiver, url: str, allow: str = "", **sender: Any) -> Answer:
    allowed = parse_allow_list(allow) if allow else AllowList()
    given: dict[str, Any] = {"resolve": resolve_here, "ports": frozenset({443, receiver.port}), "send_s": 60.0} | sender
    return await Sender(allowed, **given).send(url.format(port=receiver.port), dict(HEADERS), BODY)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("https://127.0.0.1:{port}/", "loopback"),
        ("https://[::1]:{port}/", "loopback"),
        ("https://[::ffff:127.0.0.1]:{port}/", "loopback"),
        ("https://169.254.169.254/latest", "link-local"),
        ("https://10.0.0.1/", "private"),
        ("https://2130706433/", "four decimal parts"),
        ("https://inside.test:{port}/", "loopback"),
        ("http://public.test:{port}/", "only https"),
        ("https://user:password@public.test/", "user name"),
        ("https://public.test:25/", "port 25"),
        ("ftp://public.test/", "http"),
        ("file:///etc/passwd", "http"),
    ],
)
async def test_forbidden_addresses_are_not_reached(receiver: Receiver, url: str, why: str) -> None:
    answer = await send(receiver, url)
    assert why in answer.failure
    assert (answer.status, receiver.posts) == (0, [])


async def test_a_name_is_resolved_for_each_try_and_all_its_addresses_are_checked(receiver: Receiver) -> None:
    mixed = await send(receiver, "https://two.test:{port}/", resolve=resolving(["93.184.216.34", "127.0.0.1"]))
    assert "loopback" in mixed.failure
    # It was public when the webhook was created, and is not any more.
    turned = resolving(["127.0.0.1"], ["93.184.216.34"])
    assert "loopback" in (await send(receiver, "https://turns.test:{port}/", resolve=turned)).failure
    assert receiver.posts == []


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        *(("/in?sp=%2Ftriggers%2Frun&sig=a%2Bb%2F%3D", "/in?sp=%2Ftriggers%2Frun&sig=a%2Bb%2F%3D"),),
        *(("/a%3Ab/%28c%29/%7Ed", "/a%3Ab/%28c%29/%7Ed"), ("/in?q=é", "/in?q=%C3%A9"), ("/a/../b", "/b")),
    ],
)
async def test_the_request_target_is_sent_as_it_was_given(receiver: Receiver, target: str, expected: str) -> None:
    """Its signature may cover each escape: github.com/aio-libs/aiohttp/issues/4307."""
    answer = await send(receiver, f"http://hooks.test:{{port}}{target}", f"hooks.test:{receiver.port}")
    assert (answer.failure, [post.target for post in receiver.posts]) == ("", [expected])


async def test_only_addresses_that_the_operator_has_allowed_are_reached(receiver: Receiver) -> None:
    opened = f"hooks.test:{receiver.port},192.168.7.0/24"
    assert await send(receiver, "http://hooks.test:{port}/in", opened) == Answer(204)
    other = await send(receiver, "http://other.test:{port}/in", opened)
    assert "only https" in other.failure
    network = await send(receiver, "http://127.0.0.1:{port}/in", "127.0.0.0/8")
    assert network == Answer(204)
    elsewhere = await send(receiver, "https://away.test:{port}/in", opened, resolve=resolving(["192.168.8.1"]))
    assert "private" in elsewhere.failure
    assert len(receiver.posts) == 2


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_count_as_failures_and_are_not_followed(receiver: Receiver, status: int) -> None:
    receiver.answer = lambda _: web.Response(status=status, headers={"Location": f"http://127.0.0.1:{receiver.port}/"})
    answer = await send(receiver, "http://hooks.test:{port}/in", "hooks.test")
    assert answer == Answer(status, "redirects are not followed")
    assert len(receiver.posts) == 1


async def test_a_try_takes_no_longer_than_its_timeout(receiver: Receiver) -> None:
    go_on = asyncio.Event()

    async def hang() -> int:
        await go_on.wait()
        return 200

    receiver.answer = lambda _: hang()
    async with asyncio.timeout(100):
        answer = await send(receiver, "http://hooks.test:{port}/", "hooks.test", send_s=0.5)
    go_on.set()
    assert answer == Answer(0, "no answer within 0.5 s")


async def test_endless_headers_end_the_try(receiver: Receiver) -> None:
    over = asyncio.Event()

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(b"HTTP/1.1 200 OK\r\n")
            while True:
                writer.write(b"x: " + b"y" * 100 + b"\r\n")
                await writer.drain()
                await asyncio.sleep(0.01)
        except ConnectionError:
            pass
        finally:
            writer.close()
            over.set()

    async with await asyncio.start_server(drip, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        answer = await Sender(parse_allow_list("drip.test"), resolve_here, send_s=60.0).send(
            f"http://drip.test:{port}/", dict(HEADERS), BODY
        )
        await over.wait()
    assert answer.status == 0
    assert answer.failure


async def test_an_absent_server_and_one_without_http_are_failures() -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-nothing\r\n")
        writer.close()

    async with await asyncio.start_server(babble, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        sender = Sender(parse_allow_list("no.test"), resolve_here, send_s=60.0)
        babbling = await sender.send(f"http://no.test:{port}/", dict(HEADERS), BODY)
    absent = await sender.send(f"http://no.test:{port}/", dict(HEADERS), BODY)
    assert (babbling.status, absent.status) == (0, 0)
    assert babbling.failure
    assert "cannot be reached" in absent.failure


async def test_a_certificate_must_match_the_host_and_have_a_known_authority(tmp_path: Path) -> None:
    files = Authority(tmp_path).issue("hooks")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.cert, files.key)
    trusting = ssl.create_default_context(cafile=files.ca)
    async with receiving(ssl_context=context) as receiver:
        allow = "localhost,other.test"
        assert await send(receiver, "https://localhost:{port}/", allow, tls=trusting) == Answer(204)
        stranger = await send(receiver, "https://localhost:{port}/", allow)
        other = await send(receiver, "https://other.test:{port}/", allow, tls=trusting)
        assert len(receiver.posts) == 1
    for answer in (stranger, other):
        assert "not safe" in answer.failure
