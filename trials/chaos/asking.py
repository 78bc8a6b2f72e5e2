"""A well-behaved client: it repeats requests with the same id, and reattaches after its last event."""

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
"""Pause before a request is repeated."""

RETRIABLE = (429, 500, 502, 503, 504)
"""HTTP statuses after which a client may repeat the request."""


@dataclass
class Asked:
    """One run, as seen by its reader."""

    chat_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    request_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    run_id: str = ""
    fields: dict[str, Any] = field(default_factory=dict[str, Any])
    """Other fields of the query."""
    events: list[Event] = field(default_factory=list[Event])
    attaches: int = 0
    """How often the reader had to reattach."""
    failures: list[str] = field(default_factory=list[str])
    """Requests that failed and were repeated."""
    wrong: str = ""
    """An answer that no service may give, after which the client stops."""
    wait_s: float = 0.0
    """Longest time without an event."""

    @property
    def end(self) -> Event | None:
        return self.events[-1] if self.events and self.events[-1]["type"] in TERMINAL else None


class Asker:
    """Asks the facades in turn."""

    def __init__(self, http: aiohttp.ClientSession, urls: list[str]) -> None:
        self._http = http
        self.urls = urls
        self._next = 0

    async def ask(self, asked: Asked, message: str, agent: str) -> None:
        """Follow a run to its end, despite all failures."""
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
                    last_s = loop.time()  # there is no run yet that could be silent

    async def folded_again(self, asked: Asked) -> list[Event]:
        """Return the run's events as a later reader receives them."""
        again = Asked(asked.chat_id, asked.request_id, asked.run_id)
        return [event async for event in self._attached(again, 0)]

    async def _events(self, asked: Asked, message: str, agent: str) -> AsyncGenerator[Event]:
        if asked.run_id:
            asked.attaches += 1
            async for event in self._attached(asked, asked.events[-1]["seq"]):
                yield event
            return
        # Until the run's id is known, the stream starts again from its beginning.
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
                    # Heartbeats had started, so the refusal could not be sent as a status; there is no run.
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
        """Reject the approval to repeat a call with an unknown outcome."""
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
    """A refusal that may be retried."""


class Wrong(Exception):
    """A refusal that must not be retried."""


def refusal(is_retriable: bool, reason: object) -> Refused | Wrong:
    return (Refused if is_retriable else Wrong)(str(reason))


async def _sse(response: aiohttp.ClientResponse) -> AsyncGenerator[Event]:
    if response.status != 200:
        raise refusal(response.status in RETRIABLE, f"{response.status} {await response.text()}")
    reader = SseReader()
    async for chunk in response.content.iter_any():
        for frame in reader.feed(chunk):
            if frame.data != b"[DONE]":
                yield json.loads(frame.data)
