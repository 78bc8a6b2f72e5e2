"""Stores images and audio of an answer as artifacts of the chat."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

import structlog

from headrace.errors import HeadraceError, ProviderUnavailable
from headrace.v1 import agent_pb2, common_pb2, llm_pb2, tools_pb2
from services.orchestrator.calls.backend import GONE
from services.orchestrator.peers.stubs import DISPENSABLE_S, Peers
from services.orchestrator.run.answers.answer import Answer
from services.orchestrator.run.scope import Scope

PIECE_BYTES = 256 * 1024
"""Size of a message to UploadFile, which accepts 1 MiB."""

SUFFIXES = {"audio/mpeg": "mp3", "image/jpeg": "jpg"}
"""For other types the subtype is the suffix."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class AnswerFiles:
    artifacts: list[agent_pb2.ArtifactPublish] = field(default_factory=list[agent_pb2.ArtifactPublish])
    problems: list[str] = field(default_factory=list[str])
    """Descriptions of the answer's missing files, for its reader."""


async def keep_media(scope: Scope, peers: Peers, answer: Answer, *, linked: bool) -> AnswerFiles:
    """Store the files, and link them at the end of the answer's text unless it has a form."""
    files = AnswerFiles()
    for media in answer.media:
        if media.problem:
            files.problems.append(media.problem)
            continue
        try:
            reference = await _store_file(scope, peers, media)
        except HeadraceError as error:
            log.warning("file of an answer not kept", run_id=scope.run.id, reason=error.reason, said=error.message)
            files.problems.append(f"{_make_name(media)} could not be kept: {error.message}")
            continue
        files.artifacts.append(_make_artifact(scope.run.id, reference))
        if linked:
            mark = "!" if media.mime_type.startswith("image/") else ""
            answer.add_paragraph(f"{mark}[{reference.name}]({reference.url})")
    answer.media.clear()
    return files


async def _store_file(scope: Scope, peers: Peers, media: llm_pb2.LlmMedia) -> common_pb2.Reference:
    if not await peers.wait_for_tools(DISPENSABLE_S):
        raise ProviderUnavailable(GONE)
    # Any: the stubs' types know the RPCs of synchronous channels too.
    upload: Any = peers.tools.UploadFile
    start = tools_pb2.UploadStart(
        chat_id=scope.run.chat_id, name=_make_name(media), size_bytes=len(media.data), folder="outputs"
    )
    reply: tools_pb2.UploadFileResponse = await upload(_split_upload(start, media.data))
    return reply.reference


async def _split_upload(start: tools_pb2.UploadStart, data: bytes) -> AsyncGenerator[tools_pb2.UploadFileRequest]:
    yield tools_pb2.UploadFileRequest(start=start)
    for at in range(0, len(data), PIECE_BYTES):
        yield tools_pb2.UploadFileRequest(data=data[at : at + PIECE_BYTES])


def _make_name(media: llm_pb2.LlmMedia) -> str:
    kind, _, form = media.mime_type.partition("/")
    return f"{'image' if kind == 'image' else 'sound'}.{SUFFIXES.get(media.mime_type, form)}"


def _make_artifact(run_id: str, reference: common_pb2.Reference) -> agent_pb2.ArtifactPublish:
    return agent_pb2.ArtifactPublish(
        artifact_id=f"artifact_{hashlib.sha256(reference.url.encode()).hexdigest()[:16]}",
        run_id=run_id,
        name=reference.name,
        mime_type=reference.mime_type,
        size_bytes=reference.size_bytes,
        url=reference.url,
    )
