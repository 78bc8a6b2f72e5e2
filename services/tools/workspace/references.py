from __future__ import annotations

import hashlib
from urllib.parse import urlencode

import orjson

from headrace.v1 import common_pb2
from services.tools.workspace.content_types import ContentType


def resource_url(chat_id: str, path: str) -> str:
    return "/api/resource?" + urlencode({"chatId": chat_id, "path": path})


def make_reference(chat_id: str, path: str, content: ContentType, size_bytes: int, sha256: str) -> common_pb2.Reference:
    return common_pb2.Reference(
        id=f"file_{hashlib.sha256(path.encode()).hexdigest()[:16]}",  # unique in the chat, as the path is
        type=content.kind,
        name=path.rpartition("/")[2],
        mime_type=content.mime_type,
        size_bytes=size_bytes,
        url=resource_url(chat_id, path),
        sha256=sha256,
        meta=orjson.dumps({"path": path}).decode(),
    )
