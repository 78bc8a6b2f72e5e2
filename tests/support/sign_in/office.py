"""A facade where users sign in, and a scripted browser."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from tests.support.sign_in.provider import ScriptedProvider

PUBLIC = "http://localhost:8080"
"""What the facade takes for its address; a test's browser reaches it at another one."""

KEY, OLD_KEY = "the first key of all sessions' cookies", "an older key of all sessions' cookies"

SESSION, SIGN_IN = "headrace-session", "headrace-sign-in"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Any
    text: str
    json: Any


class ScriptedBrowser:
    """A browser that stores cookies and follows no redirect by itself."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http = http
        self._url = url
        self.cookies: dict[str, str] = {}
        self.attributes: SimpleCookie = SimpleCookie()

    async def send(self, path: str, method: str = "GET", body: Any = None, **headers: str) -> Answer:
        request_headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        async with self._http.request(
            method, self._url + path, json=body, headers=request_headers, allow_redirects=False
        ) as response:
            text = await response.text()
            for name, morsel in response.cookies.items():
                self.attributes[name] = morsel.value
                self.attributes[name].update(morsel)
                self.cookies[name] = morsel.value
                if not morsel.value:
                    del self.cookies[name]
            is_json = response.content_type == "application/json"
            return Answer(response.status, response.headers, text, await response.json() if is_json else None)

    async def begin(self) -> str:
        """Go to the provider and come back; return the way back."""
        there = await self.send("/auth/sign-in")
        assert there.status == 303, there.text
        async with self._http.get(there.headers["Location"], allow_redirects=False) as sent_back:
            back = urlsplit(sent_back.headers["Location"])
        assert f"{back.scheme}://{back.netloc}" == PUBLIC
        return f"{back.path}?{back.query}"

    async def sign_in(self) -> None:
        answer = await self.send(await self.begin())
        assert (answer.status, answer.headers["Location"]) == (303, "/"), answer.text

    async def whose(self) -> dict[str, Any]:
        """What the suite says of who asks."""
        answer = await self.send("/api/identity")
        assert answer.status == 200, answer.text
        return answer.json["data"]


@dataclass
class Office:
    """A facade where users sign in."""

    url: str
    provider: ScriptedProvider
    http: aiohttp.ClientSession

    def open_browser(self) -> ScriptedBrowser:
        return ScriptedBrowser(self.http, self.url)


OpenOffice = Callable[..., AbstractAsyncContextManager[Office]]
