"""A client that does what a good client does: asks again under the same id, attaches again behind what it has."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from headrace.sse import SseReader
from tests.support.order import TERMINAL, Event

AGAIN_S = 0.1
"""Before anything is asked again."""

RETRIABLE = (429, 500, 502, 503, 504)
"""Of HTTP: what a client may repeat."""


@dataclass
class Asked:
    """One run as its reader saw it."""

    chat_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    request_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    run_id: str = ""
    fields: dict[str, Any] = field(default_factory=dict[str, Any])
    """Other fields of the query."""
    events: list[Event] = field(default_factory=list[Event])
    attaches: int = 0
    """How often the reader had to come back."""
    failures: list[str] = field(default_factory=list[str])
    """Requests that had to be made again before they gave anything."""
    wrong: str = ""
    """What no service may answer; it is not asked again then."""
    wait_s: float = 0.0
    """The longest time without an event."""

    @property
    def end(self) -> Event | None:
        return self.events[-1] if self.events and self.events[-1]["type"] in TERMINAL else None


class Asker:
    """Asks one facade after the other."""

    def __init__(self, http: aiohttp.ClientSession, urls: list[str]) -> None:
        self._http = http
        self.urls = urls
        self._next = 0

    async def ask(self, asked: Asked, message: str, agent: str) -> None:
        """A whole run, whatever happens meanwhile."""
        loop = asyncio.get_running_loop()
        last_s = loop.time()
        while asked.end is None and not asked.wrong:
            problem = "a stream of nothing"
            try:
                async for event in self._events(asked, message, agent):
                    problem = ""
                    asked.wait_s = max(asked.wait_s, loop.time() - last_s)
                    last_s = loop.time()
                    asked.events.append(event)
                    await self._decide(asked, event)
            except (aiohttp.ClientError, TimeoutError) as error:
                problem = problem and repr(error)
            except Wrong as error:
                asked.wrong = str(error)
            if problem:
                asked.failures.append(problem)
                await asyncio.sleep(AGAIN_S)
                if not asked.run_id:
                    last_s = loop.time()  # no run is silent: there is none

    async def folded_again(self, asked: Asked) -> list[Event]:
        """The run as somebody sees it who comes later."""
        again = Asked(asked.chat_id, asked.request_id, asked.run_id)
        return [event async for event in self._attached(again, 0)]

    async def _events(self, asked: Asked, message: str, agent: str) -> AsyncGenerator[Event]:
        if asked.run_id:
            asked.attaches += 1
            async for event in self._attached(asked, asked.events[-1]["seq"]):
                yield event
            return
        # Until the run's id is known, the whole stream comes again.
        asked.events.clear()
        body: dict[str, Any] = {
            "message": message,
            "agentKey": agent,
            "chatId": asked.chat_id,
            "requestId": asked.request_id,
        }
        body |= asked.fields
        async with self._http.post(f"{self._url()}/api/query", json=body) as response:
            async for event in _sse(response):
                if event["type"] == "run.error" and not event["runId"]:
                    # The heartbeats had begun: there is no run, and no status any more to say so.
                    raise refusal(event["error"]["retriable"], event["error"])
                if event["type"] == "run.start":
                    asked.run_id = event["runId"]
                yield event

    async def _attached(self, asked: Asked, last_seq: int) -> AsyncGenerator[Event]:
        params = {"runId": asked.run_id, "lastSeq": str(last_seq)}
        async with self._http.get(f"{self._url()}/api/attach", params=params) as response:
            async for event in _sse(response):
                yield event

    async def _decide(self, asked: Asked, event: Event) -> None:
        """Have nothing run again of which nobody knows whether it was done."""
        if event["type"] != "approval.ask":
            return
        approval_id = event["approvalId"]
        body: dict[str, Any] = {"runId": asked.run_id, "approvalId": approval_id, "requestId": approval_id}
        body["params"] = {"decision": "reject"}
        while True:
            try:
                async with self._http.post(f"{self._url()}/api/submit", json=body) as response:
                    if response.status == 200:
                        return
                    if response.status not in RETRIABLE:
                        raise refusal(False, f"{response.status} {await response.text()}")
            except (aiohttp.ClientError, TimeoutError):
                pass
            await asyncio.sleep(AGAIN_S)

    def _url(self) -> str:
        self._next += 1
        return self.urls[self._next % len(self.urls)]


class Refused(aiohttp.ClientError):
    """An answer that says: later."""


class Wrong(Exception):
    """An answer that says: never."""


def refusal(is_retriable: bool, said: object) -> Refused | Wrong:
    return (Refused if is_retriable else Wrong)(str(said))


async def _sse(response: aiohttp.ClientResponse) -> AsyncGenerator[Event]:
    if response.status != 200:
        raise refusal(response.status in RETRIABLE, f"{response.status} {await response.text()}")
    reader = SseReader()
    async for chunk in response.content.iter_any():
        for frame in reader.feed(chunk):
            if frame.data != b"[DONE]":
                yield json.loads(frame.data)
