"""Forwards a form with a file to UploadFile as a client stream, without buffering it.

A form's parts come in any order, so the file's name and chat are sent last.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import contextmanager
from typing import Any, TypeAlias

import grpc
from aiohttp import BodyPartReader, web
from aiohttp.http_exceptions import HttpProcessingError

from headrace.errors import InvalidRequest
from headrace.streams import rpc_errors
from headrace.v1 import tools_pb2
from services.facade.requests.body import check_size
from services.runtime.rpc import call_ids

PIECE_BYTES = 256 * 1024
"""Size of one UploadFile message; the RPC accepts up to 1 MiB."""

BODY_BYTES_MAX = 51 * 1024 * 1024
"""Maximum size of a form: the largest file of any type plus the other parts. A larger declared body is refused
unread.
"""

FIELD_BYTES_MAX = 4096
"""Maximum size of any other part; it holds an id or a name."""

TIMEOUT_S = 600.0
"""Timeout of a whole upload, as in the tools service."""

Call = grpc.aio.StreamUnaryCall[tools_pb2.UploadFileRequest, tools_pb2.UploadFileResponse]

Fields: TypeAlias = list[tuple[str, str]]
"""Names and texts of the parts other than the file."""

MakeStart: TypeAlias = Callable[[str, Fields], tools_pb2.UploadStart]
"""Builds the start message from the form's file name, which may be empty or not UTF-8, and the other fields."""


async def upload_form(
    request: web.Request, rpc: Callable[..., Any], make_start: MakeStart
) -> tuple[tools_pb2.UploadFileResponse, Fields]:
    """Upload the form's file with `rpc` (UploadFile); return the reply and the form's other fields."""
    if request.content_type != "multipart/form-data":
        raise InvalidRequest.of("Content-Type", "must be multipart/form-data")
    check_size(request, BODY_BYTES_MAX)
    fields: Fields = []
    call: Any = rpc(metadata=call_ids.forward_metadata())
    try:
        async with asyncio.timeout(TIMEOUT_S):
            with rpc_errors():
                await _send_form(request, call, fields, make_start)
                return await call, fields
    except TimeoutError:
        raise web.HTTPRequestTimeout from None
    finally:
        call.cancel()  # a disconnect must not look like the end of the file


async def _send_form(request: web.Request, call: Call, fields: Fields, make_start: MakeStart) -> None:
    """Send the form's file and collect its other `fields`; stop early if the call has failed."""
    name: str | None = None
    async for part in _read_parts(request):
        if part.name == "file":
            if name is not None:
                raise InvalidRequest.of("file", "must be given once")
            name = part.filename or ""
            if not await _send_file(part, call):
                return
        else:
            fields.append((part.name or "", await _read_field(part)))
    if name is None:
        raise InvalidRequest.of("file", "is required")
    start = make_start(name, fields)
    if not call.done():
        await call.write(tools_pb2.UploadFileRequest(start=start))
        await call.done_writing()


async def _send_file(part: BodyPartReader, call: Call) -> bool:
    """Send the file; return False if the call ended first."""
    while True:
        with _translate_form_errors():
            data = await part.read_chunk(PIECE_BYTES)
        if not data:
            return True
        if call.done():
            return False
        await call.write(tools_pb2.UploadFileRequest(data=bytes(data)))


async def _read_parts(request: web.Request) -> AsyncGenerator[BodyPartReader]:
    with _translate_form_errors():
        form = await request.multipart()
    while True:
        with _translate_form_errors():
            part = await form.next()
        if part is None:
            return
        if not isinstance(part, BodyPartReader):
            raise InvalidRequest.of("body", "must not have parts within parts")
        yield part


async def _read_field(part: BodyPartReader) -> str:
    with _translate_form_errors():
        text = await part.read_chunk(FIELD_BYTES_MAX)
        if not part.at_eof() and await part.read_chunk(FIELD_BYTES_MAX):
            raise InvalidRequest.of(
                check_utf8(part.name or "")[:64], f"must not be longer than {FIELD_BYTES_MAX} bytes"
            )
        return bytes(text).decode()


def check_utf8(name: str) -> str:
    """Return the name; refuse lone surrogates, which stand for bytes that are not UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InvalidRequest.of("file", "must have a name in UTF-8") from None
    return name


@contextmanager
def _translate_form_errors() -> Generator[None]:
    try:
        yield
    except (ValueError, HttpProcessingError) as error:
        raise InvalidRequest.of("body", "must be a whole multipart/form-data form") from error
