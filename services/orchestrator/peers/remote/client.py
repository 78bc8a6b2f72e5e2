"""One remote agent: A2A's operations on its tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from headrace.a2a import a2a_pb2
from headrace.errors import BadFrame, RemoteBadAnswer
from headrace.sse import SseReader
from services.orchestrator.agents.definition.remote import Remote
from services.orchestrator.peers.remote.bindings import make_call, read_error, read_result
from services.orchestrator.peers.remote.card import Interface, M
from services.orchestrator.peers.remote.credentials import Credentials
from services.orchestrator.peers.remote.faults import Lost
from services.orchestrator.peers.remote.http import Http, Request, check_encoding, check_status, read_body

VERSION = "1.0"

EVENT_STREAM = "text/event-stream"

OVERHEAD_BYTES = 64 * 1024
"""What may stand around an answer of the greatest size: ids, history, names of fields."""

ERROR_BYTES_MAX = 64 * 1024

Event = a2a_pb2.StreamResponse


@dataclass(frozen=True, slots=True)
class RemoteClient:
    """Every operation may raise Refused, Lost, RemoteUnavailable, RemoteNotAllowed, RemoteAuthentication and
    RemoteBadAnswer."""

    remote: Remote = field(repr=False)
    interface: Interface
    http: Http = field(repr=False)
    credentials: Credentials = field(repr=False)

    @property
    def host(self) -> str:
        return self.interface.host

    async def send(self, message: a2a_pb2.Message) -> AsyncGenerator[Event]:
        """Send a message and yield what becomes of it; an agent that does not stream says what its task is, at once."""
        request = a2a_pb2.SendMessageRequest(message=message)
        request.configuration.accepted_output_modes.extend(("text/plain", "application/json"))
        request.configuration.history_length = 0
        if self.interface.is_streaming:
            async with aclosing(self._stream("SendStreamingMessage", request)) as events:
                async for event in events:
                    yield event
            return
        request.configuration.return_immediately = True
        reply = await self._call("SendMessage", request, a2a_pb2.SendMessageResponse)
        kind = reply.WhichOneof("payload")
        if kind is None:
            raise RemoteBadAnswer(f"{self.host} answered a message with nothing", remote=self.host)
        yield Event(task=reply.task) if kind == "task" else Event(message=reply.message)

    def subscribe(self, task_id: str) -> AsyncGenerator[Event]:
        """Yield a task as it is, and what becomes of it."""
        return self._stream("SubscribeToTask", a2a_pb2.SubscribeToTaskRequest(id=task_id))

    async def get_task(self, task_id: str, history_length: int = 0) -> a2a_pb2.Task:
        request = a2a_pb2.GetTaskRequest(id=task_id, history_length=history_length)
        return await self._call("GetTask", request, a2a_pb2.Task)

    async def cancel_task(self, task_id: str) -> None:
        await self._call("CancelTask", a2a_pb2.CancelTaskRequest(id=task_id), a2a_pb2.Task)

    @property
    def _bytes_max(self) -> int:
        return self.remote.max_answer_bytes + OVERHEAD_BYTES

    @property
    def _timeout_s(self) -> float:
        return self.remote.request_timeout_ms / 1000

    def _make_request(self, operation: str, params: Any, accept: str) -> Request:
        method, url, body = make_call(self.interface, operation, params)
        headers: Mapping[str, str] = {"A2A-Version": VERSION, **self.credentials.make_headers(self.remote)}
        if body is not None:
            headers = {**headers, "Content-Type": "application/json"}
        return Request(method, url, headers, body, accept)

    async def _call(self, operation: str, params: Any, kind: type[M]) -> M:
        request = self._make_request(operation, params, "application/json")
        status, body = await self.http.fetch(request, self._timeout_s, self._bytes_max)
        if not 200 <= status < 300:
            raise read_error(self.interface, status, body)
        return read_result(self.interface, body, kind)

    async def _stream(self, operation: str, params: Any) -> AsyncGenerator[Event]:
        request = self._make_request(operation, params, EVENT_STREAM)
        async with self.http.open(request, self._timeout_s) as response:
            check_status(response, request.url)
            check_encoding(response, request.url)
            if response.content_type != EVENT_STREAM:
                body = await read_body(response, request.url, self._timeout_s, max(self._bytes_max, ERROR_BYTES_MAX))
                if not 200 <= response.status < 300:
                    raise read_error(self.interface, response.status, body)
                yield read_result(self.interface, body, Event)
                return
            async with aclosing(self._read_frames(response)) as frames:
                async for data in frames:
                    yield read_result(self.interface, data, Event)

    async def _read_frames(self, response: aiohttp.ClientResponse) -> AsyncGenerator[bytes]:
        reader = SseReader(size_bytes_max=self._bytes_max)
        while piece := await self._read_piece(response):
            try:
                for frame in reader.feed(piece):
                    if frame.data:
                        yield frame.data
            except BadFrame as error:
                raise RemoteBadAnswer(
                    f"an event of {self.host} is too large: {error.message}", remote=self.host
                ) from None

    async def _read_piece(self, response: aiohttp.ClientResponse) -> bytes:
        try:
            # The timeout covers one await, never a yield: what our own caller takes is not the agent's silence.
            async with asyncio.timeout(self.remote.silence_timeout_ms / 1000):
                return await response.content.readany()
        except TimeoutError:
            raise Lost(f"{self.host} was silent for too long") from None
