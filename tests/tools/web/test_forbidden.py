"""Forbidden URLs against canaries: listeners on 127.0.0.1 and ::1 that count connections; there must be none."""

import asyncio
import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web

from services.runtime.net.allow_list import AllowList, parse_allow_list
from services.runtime.net.targets import PORTS
from services.tools.errors import ToolFailed
from services.tools.web.fetcher import Fetcher
from tests.support.web_server import serving_web
from tests.tools.web.forbidden import RESOLVED, urls

URLS = [*dict.fromkeys(urls())]
HAS_IPV6 = Path("/proc/net/if_inet6").exists()
"""A machine without IPv6 has nothing to be reached there."""

PUBLIC = "198.51.100.7"
ABSOLUTE = [url for url in URLS if re.match(r"[\w+.-]+://[^/\n\x00][^\n\x00]*$", url)]
"""Others are paths of the site that redirects."""


@dataclass
class Canaries:
    """Two listeners on one port."""

    port: int = 0
    connections: int = 0
    asked: list[str] = field(default_factory=list[str])

    async def met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        writer.close()

    def fetcher(self, answers: list[list[str]], allow: AllowList | None = None) -> Fetcher:
        """With names that resolve to `answers`, one for each time of asking, and the canaries' port as a usual one."""

        async def resolve(name: str) -> list[str]:
            self.asked.append(name)
            return answers[min(len(self.asked), len(answers)) - 1]

        return Fetcher(allow or AllowList(), resolve, PORTS | {self.port}, fetch_s=0.5)


@pytest.fixture
async def canaries() -> AsyncGenerator[Canaries]:
    found = Canaries()
    async with await asyncio.start_server(found.met, "127.0.0.1", 0) as first:
        found.port = first.sockets[0].getsockname()[1]
        if not HAS_IPV6:
            yield found
            return
        async with await asyncio.start_server(found.met, "::1", found.port):
            yield found


def test_the_list_has_more_than_250_forbidden_urls() -> None:
    assert len(URLS) > 250


@pytest.mark.parametrize("url", URLS)
async def test_a_forbidden_url_does_not_connect(canaries: Canaries, url: str) -> None:
    fetcher = canaries.fetcher([["127.0.0.1", "::1"]])
    async with asyncio.timeout(100):
        with pytest.raises(ToolFailed) as failed:
            await fetcher.fetch(url.replace("{port}", str(canaries.port)))
    assert canaries.connections == 0
    assert "cannot be reached" not in str(failed.value), "refused before anything was tried"
    assert "no answer" not in str(failed.value)


@pytest.mark.parametrize("answer", RESOLVED)
async def test_a_name_that_resolves_to_a_forbidden_address_does_not_connect(
    canaries: Canaries, answer: list[str]
) -> None:
    allow = parse_allow_list(f"{PUBLIC}/32")
    async with asyncio.timeout(100):
        with pytest.raises(ToolFailed):
            await canaries.fetcher([answer], allow).fetch(f"http://rebind.test:{canaries.port}/")
    assert canaries.connections == 0


async def test_a_name_is_resolved_once_and_rebinding_comes_too_late(canaries: Canaries) -> None:
    fetcher = canaries.fetcher([[PUBLIC], ["127.0.0.1"]], parse_allow_list(f"{PUBLIC}/32"))
    async with asyncio.timeout(100):
        with pytest.raises(ToolFailed, match=r"no answer|cannot be reached"):
            await fetcher.fetch(f"http://rebind.test:{canaries.port}/")
    assert canaries.asked == ["rebind.test"]
    assert canaries.connections == 0


@pytest.fixture
async def redirecting() -> AsyncGenerator[tuple[int, dict[str, str]]]:
    """Yield the port of a site that redirects `/<status>` to the URL in its dictionary, and the dictionary."""
    to: dict[str, str] = {}

    async def redirect(request: web.Request) -> web.Response:
        # The header is set as it is: aiohttp's own redirect would clean it.
        return web.Response(status=int(request.path[1:]), headers={"Location": to["url"]})

    async with serving_web(redirect) as port:
        yield port, to


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("location", ABSOLUTE[::9])
async def test_a_redirect_to_a_forbidden_url_does_not_connect(
    canaries: Canaries, redirecting: tuple[int, dict[str, str]], location: str, status: int
) -> None:
    port, to = redirecting
    to["url"] = location.replace("{port}", str(canaries.port))
    fetcher = canaries.fetcher([["127.0.0.1"]], parse_allow_list(f"site.test:{port}"))
    async with asyncio.timeout(100):
        with pytest.raises(ToolFailed):
            await fetcher.fetch(f"http://site.test:{port}/{status}")
    assert canaries.connections == 0


async def test_a_redirect_to_a_name_that_now_resolves_elsewhere_does_not_connect(
    canaries: Canaries, redirecting: tuple[int, dict[str, str]]
) -> None:
    port, to = redirecting
    to["url"] = f"http://other.test:{canaries.port}/"
    fetcher = canaries.fetcher([["127.0.0.1"], ["127.0.0.1"]], parse_allow_list(f"site.test:{port}"))
    async with asyncio.timeout(100):
        with pytest.raises(ToolFailed, match="must not be reached"):
            await fetcher.fetch(f"http://site.test:{port}/302")
    assert canaries.asked == ["site.test", "other.test"]
    assert canaries.connections == 0


async def test_an_allow_list_can_open_the_canaries(canaries: Canaries) -> None:
    for host in ("127.0.0.1", "[::1]") if HAS_IPV6 else ("127.0.0.1",):
        async with asyncio.timeout(100):
            with pytest.raises(ToolFailed):
                await canaries.fetcher([], parse_allow_list("127.0.0.0/8,::1")).fetch(f"http://{host}:{canaries.port}/")
    assert canaries.connections >= 1


@pytest.mark.parametrize("port", [0, 22, 25, 6379, 7002, 8081, 65535])
async def test_ports_of_other_services_are_refused(port: int) -> None:
    with pytest.raises(ToolFailed, match="port"):
        await Fetcher().fetch(f"http://198.51.100.7:{port}/")
