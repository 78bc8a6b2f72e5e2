"""Uploads as a client sends them."""

import io
from collections.abc import AsyncIterator
from typing import Any

from PIL import Image

from headrace.streams import reading, rpc_errors
from headrace.v1 import tools_pb2
from tests.support.tools.suite import CHAT

PIECE_BYTES = 256 * 1024


def start(
    name: str, chat_id: str | None = CHAT, request_id: str | None = None, size_bytes: int | None = None
) -> tools_pb2.UploadFileRequest:
    named = tools_pb2.UploadStart(name=name, chat_id=chat_id, request_id=request_id, size_bytes=size_bytes)
    return tools_pb2.UploadFileRequest(start=named)


def pieces(data: bytes) -> list[tools_pb2.UploadFileRequest]:
    cuts = range(0, len(data), PIECE_BYTES)
    return [tools_pb2.UploadFileRequest(data=data[cut : cut + PIECE_BYTES]) for cut in cuts]


async def upload(
    stub: Any, data: bytes, name: str = "a.bin", chat_id: str | None = CHAT, request_id: str | None = None
) -> tools_pb2.UploadFileResponse:
    async def requests() -> AsyncIterator[tools_pb2.UploadFileRequest]:
        yield start(name, chat_id, request_id, len(data))
        for piece in pieces(data):
            yield piece

    with rpc_errors():
        return await stub.UploadFile(requests())


async def read(
    stub: Any, path: str, offset: int = 0, length: int = 0, chat_id: str = CHAT
) -> tuple[tools_pb2.FileInfo, bytes]:
    """Read a file; return its info and its bytes."""
    request = tools_pb2.ReadFileRequest(chat_id=chat_id, path=path, offset=offset, length=length)
    async with reading(stub.ReadFile(request)) as replies:
        received = [reply async for reply in replies]
    assert [reply.HasField("info") for reply in received] == [True] + [False] * (len(received) - 1)
    return received[0].info, b"".join(reply.data for reply in received)


def picture(kind: str, width: int, height: int, mode: str = "RGB") -> bytes:
    """An encoded picture; frames of an animation differ."""
    file = io.BytesIO()
    frame = Image.linear_gradient("L").resize((width, height)).convert(mode)
    frame.save(file, format=kind)
    return file.getvalue()
