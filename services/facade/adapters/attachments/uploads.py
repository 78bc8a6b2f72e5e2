"""Uploads a request's attachments to its chat."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import grpc
import orjson

from headrace.errors import InvalidRequest, NotFound
from headrace.streams import reading, rpc_errors
from headrace.v1 import common_pb2, tools_pb2, tools_pb2_grpc
from services.facade.adapters.attachments.attachment import NO_PICTURE, Attachment
from services.facade.adapters.attachments.file_ids import FileId
from services.runtime.rpc import call_ids

PIECE_BYTES = 256 * 1024
"""Size of one UploadFile message; the RPC accepts up to 1 MiB."""

TIMEOUT_S = 60.0


class Uploads:
    def __init__(self, tools: grpc.aio.Channel) -> None:
        # Any: the stubs' types know the RPCs of synchronous channels too.
        self._tools: Any = tools_pb2_grpc.ToolServiceStub(tools)

    async def store_attachments(
        self, attachments: Sequence[Attachment], chat_id: str, chat_key: str = ""
    ) -> tuple[str, list[common_pb2.Reference]]:
        """Upload the attachments to a chat and return the chat's id and a reference to each.

        An empty `chat_id` creates a chat. A chat with a key that does not exist yet needs the key.

        Raises:
            InvalidRequest: Names the part of the request that cannot be stored.
            HeadraceError: Any other error listed at UploadFile in tools.proto.
        """
        references: list[common_pb2.Reference] = []
        for attachment in attachments:
            reply = await self._upload(attachment, chat_id, chat_key)
            chat_id, reference = reply.chat_id, reply.reference
            if attachment.detail:
                meta = orjson.loads(reference.meta or "{}") | {"detail": attachment.detail}
                reference.meta = orjson.dumps(meta).decode()
            references.append(reference)
        return chat_id, references

    async def find_info(self, file: FileId) -> tools_pb2.FileInfo:
        """Return a stored file's metadata; NotFound if the file is gone."""
        async with aclosing(self._read_stored(file, length=1)) as pieces:
            return (await anext(pieces)).info

    async def _upload(self, attachment: Attachment, chat_id: str, chat_key: str) -> tools_pb2.UploadFileResponse:
        call: Any = self._tools.UploadFile(metadata=call_ids.forward_metadata(), timeout=TIMEOUT_S)
        size_bytes = 0
        try:
            with rpc_errors():
                async with aclosing(self._read_pieces(attachment)) as pieces:
                    async for piece in pieces:
                        if call.done():
                            break
                        size_bytes += len(piece)
                        await call.write(tools_pb2.UploadFileRequest(data=piece))
                # The request id keeps a file that is sent again in the same chat from being stored twice.
                start = tools_pb2.UploadStart(
                    chat_id=chat_id or None,
                    chat_key=chat_key or None,
                    name=attachment.name,
                    request_id="attachment",
                    size_bytes=size_bytes,
                )
                if not call.done():
                    await call.write(tools_pb2.UploadFileRequest(start=start))
                    await call.done_writing()
                reply: tools_pb2.UploadFileResponse = await call
        except (InvalidRequest, NotFound) as error:
            raise InvalidRequest.of(attachment.field, error.metadata.get("rule", error.message)) from error
        finally:
            call.cancel()
        if attachment.is_picture and reply.reference.type not in ("", "image"):
            raise InvalidRequest.of(attachment.field, NO_PICTURE)
        return reply

    async def _read_pieces(self, attachment: Attachment) -> AsyncGenerator[bytes]:
        if attachment.stored is None:
            for at in range(0, len(attachment.data), PIECE_BYTES):
                yield attachment.data[at : at + PIECE_BYTES]
            return
        async with aclosing(self._read_stored(attachment.stored)) as pieces:
            async for piece in pieces:
                yield piece.data

    async def _read_stored(self, file: FileId, length: int = 0) -> AsyncGenerator[tools_pb2.ReadFileResponse]:
        request = tools_pb2.ReadFileRequest(chat_id=file.chat_id, path=file.path, length=length)
        call = self._tools.ReadFile(request, metadata=call_ids.forward_metadata(), timeout=TIMEOUT_S)
        async with reading(call) as pieces:
            async for piece in pieces:
                yield piece
