"""POST /v1/files and GET /v1/files/{id}: files uploaded before the message that uses them.

Each file is an upload of a chat of its own, and is copied into the chat of each message that refers to it.
"""

from __future__ import annotations

from typing import Any

import grpc
import orjson
from aiohttp import web

from headrace.errors import NotFound
from headrace.v1 import tools_pb2, tools_pb2_grpc
from services.facade.adapters.attachments.file_ids import FileId, parse_file_id
from services.facade.adapters.attachments.uploads import Uploads
from services.facade.requests.file_form import check_utf8, upload_form

PURPOSE = "user_data"
"""OpenAI's purpose for files of messages; the default because purposes are not stored."""


class Files:
    def __init__(self, tools: grpc.aio.Channel) -> None:
        self._uploads = Uploads(tools)
        # Any: the stubs' types know the RPCs of synchronous channels too.
        self._tools: Any = tools_pb2_grpc.ToolServiceStub(tools)

    async def create_file(self, request: web.Request) -> web.StreamResponse:
        reply, fields = await upload_form(
            request, self._tools.UploadFile, lambda name, _: tools_pb2.UploadStart(name=check_utf8(name) or "file")
        )
        file = FileId(reply.chat_id, reply.reference.name)
        return _describe_file(file, await self._uploads.find_info(file), dict(fields).get("purpose", PURPOSE))

    async def get_file(self, request: web.Request) -> web.StreamResponse:
        given = request.match_info["id"]
        file = parse_file_id(given)
        if file is None:
            raise NotFound(f"there is no file {given[:64]!r}")
        return _describe_file(file, await self._uploads.find_info(file), PURPOSE)


def _describe_file(file: FileId, info: tools_pb2.FileInfo, purpose: str) -> web.Response:
    described = {
        "id": str(file),
        "object": "file",
        "bytes": info.size_bytes,
        "created_at": info.modified_at // 1000,
        "filename": file.name,
        "purpose": purpose,
        "status": "processed",
    }
    return web.Response(body=orjson.dumps(described), content_type="application/json")
