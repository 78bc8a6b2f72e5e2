"""The facade as the command line sees it: JSON answers, and streams of events that end with `[DONE]` or are cut."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import asynccontextmanager, contextmanager
from types import TracebackType
from typing import Any

import aiohttp
import click
import msgspec

from headrace.cli import events
from headrace.cli.exits import Away, Cut, Refused, Unreachable
from headrace.cli.options import tls, token
from headrace.errors import BadFrame
from headrace.sse import SseReader

CONNECT_TIMEOUT_S = 5.0

ANSWER_TIMEOUT_S = 60.0
"""For a JSON answer; the facade itself gives up earlier."""

SILENCE_TIMEOUT_S = 90.0
"""Heartbeats come every 15 s: a stream that is silent for six of them is dead."""


class _Data(msgspec.Struct):
    """The part of the envelope that a success needs, its data as it came."""

    data: msgspec.Raw = msgspec.Raw(b"null")


class _Error(msgspec.Struct, frozen=True):
    """What a failure says to programs."""

    retriable: bool = False


class _Answer(msgspec.Struct):
    """The part of the envelope that a failure needs."""

    msg: str = "no message"
    data: Any = None
    error: _Error = _Error()


class Server:
    """One facade, on one event loop. Open it with `async with`."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def __aenter__(self) -> Server:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=SILENCE_TIMEOUT_S)
        headers = {"Authorization": f"Bearer {shown}"} if (shown := token()) else None
        connector = aiohttp.TCPConnector(ssl=await _context()) if self.url.startswith("https:") else None
        self._http = aiohttp.ClientSession(self.url, timeout=timeout, headers=headers, connector=connector)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._http.close()

    async def get(self, path: str, **parameters: str) -> msgspec.Raw:
        """The JSON of `data`."""
        with self._unreachable():
            async with self._http.get(path, params=parameters, timeout=_ANSWER) as response:
                return await _data(response)

    async def post(self, path: str, body: dict[str, Any]) -> msgspec.Raw:
        """The JSON of `data`."""
        with self._unreachable():
            async with self._http.post(path, json=body, timeout=_ANSWER) as response:
                return await _data(response)

    async def delete(self, path: str, **parameters: str) -> None:
        with self._unreachable():
            async with self._http.delete(path, params=parameters, timeout=_ANSWER) as response:
                await _check(response)

    async def ready(self) -> dict[str, bool]:
        """Which of the facade's peers are ready."""
        with self._unreachable():
            async with self._http.get("/readyz", timeout=_ANSWER) as response:
                return msgspec.json.decode(await response.read(), type=_Answer).data

    @asynccontextmanager
    async def query(self, body: dict[str, Any]) -> AsyncGenerator[AsyncIterator[events.Event]]:
        """Ask, and read what happens inside the block."""
        with self._unreachable():
            async with self._http.post("/api/query", json=body) as response:
                yield await _events(response)

    @asynccontextmanager
    async def attach(self, run_id: str, last_seq: int) -> AsyncGenerator[AsyncIterator[events.Event]]:
        """Read what a run did after `last_seq`, and what it does."""
        parameters = {"runId": run_id, "lastSeq": str(last_seq)}
        with self._unreachable():
            async with self._http.get("/api/attach", params=parameters) as response:
                yield await _events(response)

    @contextmanager
    def _unreachable(self) -> Generator[None]:
        """Everything that can go wrong before an answer is there, or with its form, named."""
        try:
            yield
        except (aiohttp.ClientError, TimeoutError) as error:
            reason = error or type(error).__name__
            message = f"no Headrace answers at {self.url} ({reason}); `headrace up` starts one, --url names another"
            raise Unreachable(message) from error
        except msgspec.MsgspecError as error:
            raise Refused(f"what answers at {self.url} is not Headrace, or not of this version") from error


async def _context() -> ssl.SSLContext:
    shown = tls()
    try:
        return await asyncio.to_thread(shown.context)
    except OSError as error:
        raise click.UsageError(str(error)) from error


_ANSWER = aiohttp.ClientTimeout(total=ANSWER_TIMEOUT_S, sock_connect=CONNECT_TIMEOUT_S)


async def _data(response: aiohttp.ClientResponse) -> msgspec.Raw:
    await _check(response)
    return msgspec.json.decode(await response.read(), type=_Data).data


async def _check(response: aiohttp.ClientResponse) -> None:
    if response.status >= 400:
        answer = msgspec.json.decode(await response.read(), type=_Answer)
        if response.status == 401 and not token():
            raise Refused("this facade wants a credential: give an API key or a JWT by --token or HEADRACE_TOKEN")
        raise _refusal(answer.msg, retriable=answer.error.retriable)


def _refusal(message: str, *, retriable: bool) -> Refused:
    return (Away if retriable else Refused)(message)


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[events.Event]:
    await _check(response)
    return _read(response)


async def _read(response: aiohttp.ClientResponse) -> AsyncGenerator[events.Event]:
    """The events up to `[DONE]`. Holds nothing: the response is closed by its own block."""
    reader = SseReader()
    try:
        async for chunk in response.content.iter_any():
            for frame in reader.feed(chunk):
                if frame.data == b"[DONE]":
                    return
                event = events.decode(frame.data)
                if event.type == "run.error" and not event.run_id:
                    # A refusal that came behind the headers: there is no run that could have failed.
                    raise _refusal(event.error.message, retriable=event.error.retriable)
                yield event
    except (aiohttp.ClientError, TimeoutError, BadFrame) as error:
        raise Cut(f"the stream broke ({type(error).__name__})") from error
    raise Cut("the stream ended before the run did")
