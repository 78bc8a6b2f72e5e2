"""Stubs whose calls are noted on the tape of the run that makes them."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message

from headrace.cassette.methods import find_method
from services.orchestrator.tape.tape import TAPE, Tape, TapedCall

WITHOUT_REQUEST = frozenset({"MemoryService/Append", "MemoryService/BeginRun", "ToolService/UploadFile"})
"""Calls of which no request is noted: the log has it, or it is a stream."""


def tape_calls(stub: Any, service: str) -> None:
    """Have the stub's calls noted where their task has a tape; others pass as they are."""
    for name in find_method_names(service):
        method = f"{service}/{name}"
        real = getattr(stub, name)
        setattr(stub, name, _tape_stream(real, method) if find_method(method).server_streaming else _tape(real, method))


def find_method_names(service: str) -> list[str]:
    return [method.name for method in find_method(FIRST[service]).containing_service.methods]


FIRST = {
    "LlmService": "LlmService/StreamChat",
    "MemoryService": "MemoryService/Append",
    "ToolService": "ToolService/Execute",
}
"""A method of each service, by which it is found."""


def _tape(real: Any, method: str) -> Any:
    def ask(request: Any, **settings: Any) -> Any:
        tape = TAPE.get()
        return real(request, **settings) if tape is None else _ask(tape, request, settings)

    async def _ask(tape: Tape, request: Any, settings: dict[str, Any]) -> Any:
        with tape.calling(method, serialize(method, request)) as call:
            answer = await real(request, **settings)
            call.note(answer.SerializeToString())
            return answer

    return ask


def _tape_stream(real: Any, method: str) -> Any:
    def ask(request: Any, **settings: Any) -> Any:
        tape, call = TAPE.get(), real(request, **settings)
        return call if tape is None else _TapedStream(call, tape.begin_call(method, serialize(method, request)))

    return ask


class _TapedStream:
    """As much of a stream's call as `headrace.streams.reading` uses."""

    def __init__(self, call: Any, taped: TapedCall) -> None:
        self._call = call
        self._taped = taped

    def __aiter__(self) -> _TapedStream:
        self._messages = aiter(self._call)
        return self

    async def __anext__(self) -> Message:
        try:
            message: Message = await anext(self._messages)
        except StopAsyncIteration:
            self._taped.end()
            raise
        except BaseException as error:
            self._taped.end(error)
            raise
        self._taped.note(message.SerializeToString())
        return message

    def cancel(self) -> None:
        self._call.cancel()
        self._taped.end(GeneratorExit())


def serialize(method: str, request: Any) -> bytes:
    return b"" if method in WITHOUT_REQUEST else request.SerializeToString()
