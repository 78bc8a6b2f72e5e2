"""Requests to the facade: JSON answers, and event streams, which end with `[DONE]` or break."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import aiohttp
import click
import msgspec
from google.protobuf.message import Message

from headrace.cli.facade.exit_codes import PeerUnavailable, RequestRefused, ServerUnreachable, StreamCut
from headrace.cli.facade.options import get_tls, get_token, get_url
from headrace.contract import RPCS, Rpc
from headrace.errors import BadFrame
from headrace.event_json import fill_message, list_members, parse_event
from headrace.sse import SseReader
from headrace.v1 import agent_pb2

CONNECT_TIMEOUT_S = 5.0

ANSWER_TIMEOUT_S = 60.0
"""Longer than the facade waits for a JSON answer."""

UPLOAD_TIMEOUT_S = 600.0
"""Equal to the facade's limit for an upload."""

SILENCE_TIMEOUT_S = 90.0
"""Silence after which a stream is considered dead: six heartbeats of 15 s."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Answer:
    data: Any
    """The member `data` of the JSON."""
    message: Any
    """The response of the RPC."""


class _Uploaded(msgspec.Struct):
    data: dict[str, Any]


class _Error(msgspec.Struct, frozen=True):
    retriable: bool = False


class _FailureEnvelope(msgspec.Struct):
    msg: str
    data: Any = None
    error: _Error = _Error()


class _ReadinessEnvelope(msgspec.Struct):
    data: dict[str, bool]


class FacadeClient:
    """Connections to the facade of the running command on one event loop; open it with `async with`."""

    def __init__(self) -> None:
        self.url = get_url()

    async def __aenter__(self) -> FacadeClient:
        headers = {"Authorization": f"Bearer {token}"} if (token := get_token()) else None
        connector = None
        if self.url.startswith("https:"):
            try:
                tls = await asyncio.to_thread(get_tls().context)
            except OSError as error:
                raise click.UsageError(str(error)) from error
            connector = aiohttp.TCPConnector(ssl=tls)
        self._http = aiohttp.ClientSession(self.url, timeout=_STREAM_TIMEOUT, headers=headers, connector=connector)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._http.close()

    async def send(self, request: Message) -> Any:
        """Send a request of the contract to its route; return the response."""
        return (await self.fetch(request)).message

    async def fetch(self, request: Message) -> Answer:
        """Send a request of the contract to its route; return the response, and its JSON."""
        rpc = _RPCS[request.DESCRIPTOR.full_name]
        with self._translate_errors():
            async with self._open(request, _ANSWER_TIMEOUT) as response:
                await _check_status(response)
                text = await response.read()
        with self._reading_answer():
            members = json.loads(text)
            data, name = members["data"], rpc.http and rpc.http.response_body
            return Answer(data, _make_response(rpc, members | {name: data} if name else data))

    def _open(
        self, request: Message, timeout: aiohttp.ClientTimeout
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Open the answer to a request of the contract, at its route."""
        http = _RPCS[request.DESCRIPTOR.full_name].http
        assert http is not None, "it has a route"
        verb = http.WhichOneof("pattern") or ""
        members = list_members(request)
        content: dict[str, Any] = {"json": members} if http.body else {"params": _list_parameters(members)}
        return self._http.request(verb, getattr(http, verb), timeout=timeout, **content)

    async def upload(self, file: Path, chat_id: str) -> dict[str, Any]:
        """Upload a file to a chat and return its reference; OSError if the file cannot be read."""
        with self._translate_errors(), file.open("rb") as content:
            # Quote the name as browsers do: aiohttp would store `a b` as `a%20b`. Unprintable characters become
            # "?".
            name = "".join(letter if letter.isprintable() else "?" for letter in file.name)
            form = aiohttp.FormData({"chatId": chat_id}, quote_fields=False)
            # aiohttp would otherwise take the name of the opened file.
            form.add_field("file", aiohttp.BufferedReaderPayload(content, filename=name), filename=name)
            async with self._http.post("/api/upload", data=form, timeout=_UPLOAD_TIMEOUT) as response:
                await _check_status(response)
                return msgspec.json.decode(await response.read(), type=_Uploaded).data

    @asynccontextmanager
    async def download(self, request: Message) -> AsyncGenerator[AsyncIterator[bytes]]:
        """Open a binary answer; the block reads its bytes as they arrive."""
        with self._translate_errors():
            async with self._open(request, _STREAM_TIMEOUT) as response:
                await _check_status(response)
                yield response.content.iter_any()

    async def fetch_readiness(self) -> dict[str, bool]:
        with self._translate_errors():
            async with self._http.get("/readyz", params={"all": ""}, timeout=_ANSWER_TIMEOUT) as response:
                return msgspec.json.decode(await response.read(), type=_ReadinessEnvelope).data

    @asynccontextmanager
    async def query(self, body: dict[str, Any]) -> AsyncGenerator[AsyncIterator[agent_pb2.AgentDelta]]:
        """Ask a question; the block reads the events of its run."""
        with self._translate_errors():
            async with self._http.post("/api/query", json=body) as response:
                await _check_status(response)
                yield self._read_events(response)

    @asynccontextmanager
    async def attach(self, run_id: str, last_seq: int) -> AsyncGenerator[AsyncIterator[agent_pb2.AgentDelta]]:
        """Attach to a run; the block reads its events after `last_seq`."""
        parameters = {"runId": run_id, "lastSeq": str(last_seq)}
        with self._translate_errors():
            async with self._http.get("/api/attach", params=parameters) as response:
                await _check_status(response)
                yield self._read_events(response)

    @asynccontextmanager
    async def watch(self, request: Message) -> AsyncGenerator[AsyncIterator[Any]]:
        """Open an endless stream of responses; StreamCut is raised when it ends."""
        with self._translate_errors():
            async with self._open(request, _STREAM_TIMEOUT) as response:
                await _check_status(response)
                yield self._read_responses(response, _RPCS[request.DESCRIPTOR.full_name])

    @contextmanager
    def _translate_errors(self) -> Generator[None]:
        """Convert failed connections and unreadable answers to errors with an exit code."""
        try:
            yield
        except (aiohttp.ClientError, TimeoutError) as error:
            reason = _describe_cause(error)
            message = f"no Headrace answers at {self.url} ({reason}); start one with `headrace up`, or set --url"
            raise ServerUnreachable(message) from error
        except msgspec.MsgspecError as error:
            raise self._reject_answer() from error

    async def _read_responses(self, response: aiohttp.ClientResponse, rpc: Rpc) -> AsyncGenerator[Any]:
        async for data in _read_frames(response, "the server has ended the stream"):
            with self._reading_answer():
                message = _make_response(rpc, json.loads(data))
            yield message

    async def _read_events(self, response: aiohttp.ClientResponse) -> AsyncGenerator[agent_pb2.AgentDelta]:
        """Yield the events before `[DONE]`; the caller's block closes the response."""
        async for data in _read_frames(response, "the stream ended before the run did"):
            if data == b"[DONE]":
                return
            yield self._parse_event(data)

    def _parse_event(self, data: bytes) -> agent_pb2.AgentDelta:
        with self._reading_answer():
            event = parse_event(data)
        if event.HasField("run_error") and not event.run_error.run_id:
            # The server refused the request after sending the headers; no run has failed.
            failure = event.run_error.error
            raise _build_refusal(failure.message, retriable=failure.retriable)
        return event

    @contextmanager
    def _reading_answer(self) -> Generator[None]:
        """Refuse an answer whose members are not those of the contract."""
        try:
            yield
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise self._reject_answer() from error

    def _reject_answer(self) -> RequestRefused:
        return RequestRefused(f"what answers at {self.url} is not Headrace, or not of this version")


def _describe_cause(error: aiohttp.ClientError | TimeoutError) -> str:
    """Return why there is no connection, or no answer, in a few words."""
    match error:
        case aiohttp.ClientConnectorError(os_error=ConnectionError(errno=int(number))):
            return os.strerror(number)
        case aiohttp.ClientConnectorError():
            return str(error.os_error)
        case aiohttp.ClientResponseError():
            return "it does not speak HTTP/1.1: is that the gRPC port?"
        case _:
            return str(error) or type(error).__name__


def make_request(request: Callable[[FacadeClient], Awaitable[Result]]) -> Result:
    """Make one request with its own client and event loop."""

    async def answer() -> Result:
        async with FacadeClient() as facade:
            return await request(facade)

    return asyncio.run(answer())


def send_request(request: Message) -> Any:
    """Send one request of the contract; return the response."""
    return make_request(lambda facade: facade.send(request))


_RPCS = {rpc.descriptor.input_type.full_name: rpc for rpc in RPCS.values() if rpc.http is not None}
"""The RPCs that have a route, by the names of their requests."""

_UPLOAD_TIMEOUT = aiohttp.ClientTimeout(total=UPLOAD_TIMEOUT_S, sock_connect=CONNECT_TIMEOUT_S)

_STREAM_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=SILENCE_TIMEOUT_S)

_ANSWER_TIMEOUT = aiohttp.ClientTimeout(total=ANSWER_TIMEOUT_S, sock_connect=CONNECT_TIMEOUT_S)


def _make_response(rpc: Rpc, members: Mapping[str, Any]) -> Any:
    response = rpc.response()
    fill_message(response, members)
    return response


def _list_parameters(members: dict[str, Any]) -> list[tuple[str, str]]:
    """Return a request's members as they stand in a query; a list is a parameter that is repeated."""
    lists = {name: value if isinstance(value, list) else [value] for name, value in members.items()}
    return [
        (name, str(item).lower() if isinstance(item, bool) else str(item))
        for name, items in lists.items()
        for item in items
    ]


async def _read_frames(response: aiohttp.ClientResponse, end: str) -> AsyncGenerator[bytes]:
    """Yield the data of each frame, then raise StreamCut; its message is `end` if the connection did not break."""
    reader = SseReader()
    try:
        async for chunk in response.content.iter_any():
            for frame in reader.feed(chunk):
                if frame.event == "error":  # the credential has ended; no run has failed
                    failure = msgspec.json.decode(frame.data, type=_FailureEnvelope)
                    raise _build_refusal(failure.msg, retriable=failure.error.retriable)
                yield frame.data
    except (aiohttp.ClientError, TimeoutError, BadFrame) as error:
        raise StreamCut(f"the stream broke ({type(error).__name__})") from error
    raise StreamCut(end)


async def _check_status(response: aiohttp.ClientResponse) -> None:
    if response.status >= 400:
        try:
            answer = msgspec.json.decode(await response.read(), type=_FailureEnvelope)
        except msgspec.MsgspecError as error:  # a proxy's own page, perhaps
            message = f"{response.url.origin()} answered {response.status}, not as Headrace does"
            raise _build_refusal(message, retriable=response.status >= 500) from error
        if response.status == 401 and not get_token():
            raise RequestRefused(
                "this facade wants a credential: give an API key or a JWT by --token or HEADRACE_TOKEN"
            )
        raise _build_refusal(answer.msg, retriable=answer.error.retriable)


def _build_refusal(message: str, *, retriable: bool) -> RequestRefused:
    return (PeerUnavailable if retriable else RequestRefused)(message)
