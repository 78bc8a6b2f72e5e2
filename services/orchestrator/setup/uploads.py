"""Files that a query refers to: kept for the chat, and shown in a user message when small."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import structlog

from headrace.errors import HeadraceError
from headrace.streams import reading
from headrace.v1 import common_pb2, llm_pb2, memory_pb2, tools_pb2
from services.orchestrator import ids
from services.orchestrator.peers.stubs import UNARY_TIMEOUT_S, Peers
from services.orchestrator.run.attention import Upload
from services.orchestrator.run.scope import Scope
from services.runtime.rpc.call_ids import forward_metadata

UPLOADS_MAX = 1000
"""The oldest are dropped first."""

TEXT_BYTES_MAX = 10 * 1024
IMAGE_BYTES_MAX = 10 * 1024 * 1024
"""Tools read larger files."""

SHOWN_BYTES_MAX = 24 * 1024 * 1024
"""One query's images go to the provider in one request."""

IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")

log = structlog.get_logger()


def read_references(references: Iterable[common_pb2.Reference]) -> list[Upload]:
    found = [(parse_path(reference), reference) for reference in references]
    return [
        Upload(path, reference.type or "other", reference.size_bytes, reference.mime_type)
        for path, reference in found
        if path
    ]


def parse_path(reference: common_pb2.Reference) -> str:
    """Return the path; empty unless UploadFile made the reference."""
    try:
        meta: Any = json.loads(reference.meta or "null")
    except (ValueError, RecursionError):
        return ""
    path = meta.get("path") if isinstance(meta, dict) else None
    return path if isinstance(path, str) and path.startswith("uploads/") else ""


def merge_uploads(before: Iterable[Upload], now: Iterable[Upload]) -> list[Upload]:
    return [*({upload.path: upload for upload in (*before, *now)}).values()][-UPLOADS_MAX:]


async def show_uploads(scope: Scope, peers: Peers, given: Iterable[Upload]) -> None:
    parts: list[llm_pb2.ContentPart] = []
    room = SHOWN_BYTES_MAX
    for upload in given:
        shown = await _make_parts(scope, peers, upload, room)
        room -= sum(len(part.image.data) for part in shown)
        parts += shown
    if not parts or scope.recording.user_message() is not None:
        return
    message = memory_pb2.LogMessage(ts=ids.now_ms(), message=llm_pb2.Message(role="user", content=parts))
    await scope.commit([message])


async def _make_parts(scope: Scope, peers: Peers, upload: Upload, room: int) -> list[llm_pb2.ContentPart]:
    if upload.mime_type in IMAGES and upload.size_bytes <= min(IMAGE_BYTES_MAX, room):
        data = await _read_content(scope, peers, upload, IMAGE_BYTES_MAX)
        if data is None or len(data) > room:
            return []
        image = llm_pb2.ImagePart(data=data, mime_type=upload.mime_type)
        return [
            llm_pb2.ContentPart(text=f"[image: {upload.name}, {upload.path}]"),
            llm_pb2.ContentPart(image=image),
        ]
    if upload.kind in ("text", "code") and upload.size_bytes < TEXT_BYTES_MAX:
        data = await _read_content(scope, peers, upload, TEXT_BYTES_MAX)
        if data is not None:
            return [llm_pb2.ContentPart(text=f"[File: {upload.name}]\n{data.decode(errors='replace')}")]
    return []


async def _read_content(scope: Scope, peers: Peers, upload: Upload, bytes_max: int) -> bytes | None:
    """Return None when the file cannot be read or has grown."""
    request = tools_pb2.ReadFileRequest(chat_id=scope.run.chat_id, path=upload.path)
    data = bytearray()
    try:
        async with reading(
            peers.tools.ReadFile(request, timeout=UNARY_TIMEOUT_S, metadata=forward_metadata())
        ) as pieces:
            async for piece in pieces:
                data += piece.data
                if len(data) > bytes_max:
                    return None
    except HeadraceError as error:
        log.warning("upload not read", run_id=scope.run.id, reason=error.reason)
        return None
    return bytes(data)
