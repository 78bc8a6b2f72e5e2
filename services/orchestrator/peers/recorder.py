"""Records a run: every call to its peers with the answer, and every event that people and readers received."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message

from headrace.cassette.methods import find_method_of
from headrace.errors import HeadraceError, from_rpc_error
from services.runtime.auth.identity import Identity, require_identity
from services.runtime.clock import now_ms

BYTES_MAX = 16 * 1024 * 1024
"""Maximum bytes of a recording; a longer run has none."""

LINES_MAX = 200_000

TOO_LARGE, TAKEN_OVER, NOT_STORED, ROUTED, REMOTE = "TOO_LARGE", "TAKEN_OVER", "NOT_STORED", "ROUTED", "REMOTE"
"""Reasons why a run has no recording."""

Kind: TypeAlias = Literal["call", "answer", "end", "received", "event"]


@dataclass(frozen=True, slots=True)
class Failed:
    """How a call failed: with a service's error, with only a status, or because the run abandoned it."""

    error: HeadraceError | None = None
    status: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    at: int
    """Unix milliseconds."""
    kind: Kind
    number: int = 0
    """The call's number."""
    method: str = ""
    data: bytes = b""
    failed: Failed | None = None
    by: Identity | None = None


Listener: TypeAlias = Callable[[Entry], None]

LISTENER: ContextVar[Listener | None] = ContextVar("LISTENER", default=None)
"""Receives the entries of every run in this context, recorded or not; a replay compares them."""


class RecordedCall:
    """A call of the run while it is open."""

    def __init__(self, note: Callable[[Entry], None], number: int, method: str, request: bytes) -> None:
        self._note_entry, self._number, self._method = note, number, method
        self._is_over = False
        note(Entry(now_ms(), "call", number, method, request))

    def note(self, answer: bytes) -> None:
        """Record a received message."""
        self._note_entry(Entry(now_ms(), "answer", self._number, self._method, answer))

    def end(self, error: BaseException | None = None) -> None:
        """Record the call's end, with the error if it failed; later calls have no effect."""
        if not self._is_over:
            self._is_over = True
            failed = None if error is None else _describe(error)
            self._note_entry(Entry(now_ms(), "end", self._number, self._method, failed=failed))


class Recorder:
    """Stops when it is full; `problem` then states that."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.problem = ""
        self.is_closed = False
        self._size = 0
        self._calls = 0
        self._listener = LISTENER.get()

    def note_event(self, event: bytes) -> None:
        self._note(Entry(now_ms(), "event", data=event))

    def note_received(self, request: Message) -> None:
        """Record a message from a person or another program to the run."""
        by, method = require_identity(), find_method_of(request)
        name = f"{method.containing_service.name}/{method.name}"
        self._note(Entry(now_ms(), "received", method=name, data=request.SerializeToString(), by=by))

    def close(self) -> None:
        """Note nothing more."""
        self.is_closed = True

    def begin_call(self, method: str, request: bytes) -> RecordedCall:
        self._calls += 1
        return RecordedCall(self._note, self._calls, method, request)

    @contextmanager
    def calling(self, method: str, request: bytes) -> Generator[RecordedCall]:
        """Record a call and its outcome."""
        call = self.begin_call(method, request)
        try:
            yield call
        except BaseException as error:
            call.end(error)
            raise
        call.end()

    def _note(self, entry: Entry) -> None:
        if self.is_closed:
            return
        if self._listener is not None:
            self._listener(entry)
        if self.problem:
            return
        self._size += len(entry.data)
        if self._size > BYTES_MAX or len(self.entries) >= LINES_MAX:
            self.problem = TOO_LARGE
            self.entries.clear()
            return
        self.entries.append(entry)


RECORDER: ContextVar[Recorder | None] = ContextVar("RECORDER", default=None)
"""The recorder of the run that the current task works for."""


def has_details(error: grpc.aio.AioRpcError) -> bool:
    """Return whether the service itself sent the error, as opposed to a broken connection."""
    return any(name == "grpc-status-details-bin" for name, _ in error.trailing_metadata() or ())


def _describe(error: BaseException) -> Failed:
    cause = error.__cause__ if isinstance(error, HeadraceError) else error
    if isinstance(cause, grpc.aio.AioRpcError):
        known = from_rpc_error(cause)
        return Failed(known) if known is not None and has_details(cause) else Failed(status=cause.code().name)
    return Failed(error) if isinstance(error, HeadraceError) else Failed()


WITHOUT_REQUEST = frozenset({"MemoryService/Append", "MemoryService/BeginRun", "ToolService/UploadFile"})
"""Calls recorded without their requests, which are in the log or are streams."""


def record_calls(stub: Any, service: ServiceDescriptor) -> None:
    """Record the stub's calls whenever the current task has a recorder."""
    for method in service.methods:
        recorder = _record_stream if method.server_streaming else _record_unary
        setattr(stub, method.name, recorder(getattr(stub, method.name), f"{service.name}/{method.name}"))


def _record_unary(real: Any, method: str) -> Any:
    def ask(request: Any, **settings: Any) -> Any:
        recorder = RECORDER.get()
        return real(request, **settings) if recorder is None else _ask(recorder, request, settings)

    async def _ask(recorder: Recorder, request: Any, settings: dict[str, Any]) -> Any:
        with recorder.calling(method, serialize(method, request)) as call:
            answer = await real(request, **settings)
            call.note(answer.SerializeToString())
            return answer

    return ask


def _record_stream(real: Any, method: str) -> Any:
    def ask(request: Any, **settings: Any) -> Any:
        recorder, call = RECORDER.get(), real(request, **settings)
        if recorder is None:
            return call
        return _RecordedStream(call, recorder.begin_call(method, serialize(method, request)))

    return ask


class _RecordedStream:
    """The part of a streaming call that `headrace.streams.reading` uses."""

    def __init__(self, call: Any, recorded: RecordedCall) -> None:
        self._call = call
        self._recorded = recorded

    def __aiter__(self) -> _RecordedStream:
        self._messages = aiter(self._call)
        return self

    async def __anext__(self) -> Message:
        try:
            message: Message = await anext(self._messages)
        except StopAsyncIteration:
            self._recorded.end()
            raise
        except BaseException as error:
            self._recorded.end(error)
            raise
        self._recorded.note(message.SerializeToString())
        return message

    def cancel(self) -> None:
        self._call.cancel()
        self._recorded.end(GeneratorExit())


def serialize(method: str, request: Any) -> bytes:
    return b"" if method in WITHOUT_REQUEST else request.SerializeToString()
