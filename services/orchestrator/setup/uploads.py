"""Files that a query refers to: stored for the chat, and shown in a user message if small."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any

from headrace.v1 import agent_pb2, common_pb2, llm_pb2, memory_pb2
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.peers.workspace_files import list_workspace, read_file
from services.orchestrator.run.run import Run
from services.orchestrator.run.scope import Scope
from services.orchestrator.run.scope_parts import Link, Upload
from services.runtime.clock import now_ms
from services.runtime.tokens.image_size import SOUND_TYPES

UPLOADS = "uploads"
"""Their folder in the workspace."""

UPLOADS_MAX = 1000
"""Maximum uploads of a chat; the oldest are dropped."""

TEXT_BYTES_MAX = 10 * 1024
"""Tools read larger files."""

SHOWN_BYTES_MAX = 24 * 1024 * 1024
"""Maximum bytes of a query's images, audio and documents, which go to the provider in one request."""

IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")


def read_references(references: Iterable[common_pb2.Reference]) -> list[Upload]:
    found = [(parse_path(reference), reference) for reference in references]
    return [
        Upload(path, reference.type or "other", reference.size_bytes, reference.mime_type, _parse_detail(reference))
        for path, reference in found
        if path
    ]


def read_links(references: Iterable[common_pb2.Reference]) -> list[Link]:
    """Return the references to addresses outside the chat, which have no file here."""
    found = (reference for reference in references if reference.url and not parse_path(reference))
    return [Link(reference.name or reference.id, reference.url) for reference in found]


def parse_path(reference: common_pb2.Reference) -> str:
    """Return the path; empty unless UploadFile created the reference."""
    path = _parse_meta(reference).get("path")
    return path if isinstance(path, str) and path.startswith(f"{UPLOADS}/") else ""


def _parse_detail(reference: common_pb2.Reference) -> str:
    detail = _parse_meta(reference).get("detail")
    return detail if detail in ("low", "high") else ""


def _parse_meta(reference: common_pb2.Reference) -> dict[str, Any]:
    try:
        meta: Any = json.loads(reference.meta or "null")
    except (ValueError, RecursionError):
        return {}
    return meta if isinstance(meta, dict) else {}


async def find_uploads(
    run: Run, peers: Peers, given: list[Upload], earlier: list[Upload]
) -> tuple[list[Upload], list[Upload], list[str]]:
    """Return the existing uploads of both lists, and the names of missing given ones; if existence is unknown, all
    exist."""
    listed = await list_workspace(peers, run.chat_id, UPLOADS) if given or earlier else None
    if listed is None or listed.has_more:
        return given, earlier, []
    paths = {file.path for file in listed.files}
    return (
        [upload for upload in given if upload.path in paths],
        [upload for upload in earlier if upload.path in paths],
        [*dict.fromkeys(upload.name for upload in given if upload.path not in paths)],
    )


def merge_uploads(before: Iterable[Upload], now: Iterable[Upload]) -> list[Upload]:
    return [*({upload.path: upload for upload in (*before, *now)}).values()][-UPLOADS_MAX:]


async def announce_uploads(scope: Scope, known: Iterable[Upload], given: Iterable[Upload]) -> None:
    """Record each of the query's uploads `given` that is new to the chat."""
    given_paths = {upload.path for upload in given}
    known_paths, query = {upload.path for upload in known}, scope.run.query
    for reference in query.references:
        path = parse_path(reference)
        if path not in given_paths or path in known_paths:
            continue
        known_paths.add(path)
        upload = agent_pb2.Upload(
            type=reference.type or "other",
            name=reference.name or path.rpartition("/")[2],
            size_bytes=reference.size_bytes,
            mime_type=reference.mime_type,
            sha256=reference.sha256 or None,
        )
        await scope.record(
            agent_pb2.RequestUpload(request_id=query.request_id, chat_id=scope.run.chat_id, upload=upload)
        )


def is_shown_kind(upload: Upload) -> bool:
    """Return whether the file is audio or a document of a type that some models accept."""
    return upload.mime_type in SOUND_TYPES or upload.kind == "pdf"


async def show_uploads(scope: Scope, peers: Peers, given: Iterable[Upload], kinds: Collection[str]) -> None:
    """Commit a message with the files that the model sees: small texts, images, and files of these `kinds`."""
    parts: list[llm_pb2.ContentPart] = []
    room = SHOWN_BYTES_MAX
    for upload in given:
        if upload.mime_type in IMAGES or (upload.kind in kinds and is_shown_kind(upload)):
            shown = await _make_media(scope, peers, upload, room)
            room -= sum(part.ByteSize() for part in shown)
            parts += shown
        elif upload.kind in ("text", "code"):
            parts += await _make_text(scope, peers, upload)
    if not parts or scope.restored.user_message() is not None:
        return
    message = memory_pb2.LogMessage(ts=now_ms(), message=llm_pb2.Message(role="user", content=parts))
    await scope.commit([message])


async def _make_media(scope: Scope, peers: Peers, upload: Upload, room: int) -> list[llm_pb2.ContentPart]:
    data = await read_file(peers, scope.run.chat_id, upload.path, room)
    if data is None:
        return []
    part = llm_pb2.ContentPart()
    if upload.mime_type in IMAGES:
        part.image.data, part.image.mime_type, part.image.detail = data, upload.mime_type, upload.detail
    elif upload.kind == "pdf":
        part.file.data, part.file.mime_type, part.file.name = data, upload.mime_type, upload.name
    else:
        part.audio.data, part.audio.mime_type = data, upload.mime_type
    return [llm_pb2.ContentPart(text=f"[{upload.kind}: {upload.name}, {upload.path}]"), part]


async def _make_text(scope: Scope, peers: Peers, upload: Upload) -> list[llm_pb2.ContentPart]:
    data = None
    if upload.size_bytes < TEXT_BYTES_MAX:
        data = await read_file(peers, scope.run.chat_id, upload.path, TEXT_BYTES_MAX)
    return [] if data is None else [llm_pb2.ContentPart(text=f"[File: {upload.name}]\n{data.decode(errors='replace')}")]
