"""Workspace files that a context mentions, for its summary."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

import grpc
import structlog

from headrace.errors import HeadraceError
from headrace.streams import reading
from headrace.v1 import llm_pb2, memory_pb2, tools_pb2
from services.orchestrator.peers.stubs import UNARY_TIMEOUT_S, Peers, translating_peer_errors
from services.orchestrator.turn.path_mentions import PathMentions
from services.runtime.rpc.call_ids import forward_metadata

FILES_MAX = 5
LINES_MAX = 1000

READ_BYTES_MAX = 1024 * 1024
"""A thousand lines seldom have more."""

log = structlog.get_logger()


async def collect_files(
    peers: Peers, chat_id: str, messages: Sequence[llm_pb2.Message]
) -> list[memory_pb2.ContextFile]:
    """Return the most important files first, unreadable ones left out."""
    paths = await _list_paths(peers, chat_id)
    found: list[memory_pb2.ContextFile] = []
    for path in await asyncio.to_thread(_rank_paths, messages, paths) if paths else ():
        data = await _read_file(peers, chat_id, path)
        if data is not None and b"\0" not in data:
            lines = data.decode(errors="replace").splitlines()
            omitted = max(0, len(lines) - LINES_MAX)
            found.append(memory_pb2.ContextFile(path=path, text="\n".join(lines[:LINES_MAX]), lines_omitted=omitted))
        if len(found) == FILES_MAX:
            break
    return found


async def _list_paths(peers: Peers, chat_id: str) -> frozenset[str]:
    request = tools_pb2.ListFilesRequest(chat_id=chat_id)
    try:
        with translating_peer_errors():
            reply = await peers.tools.ListFiles(request, timeout=UNARY_TIMEOUT_S, metadata=forward_metadata())
    except (HeadraceError, grpc.aio.AioRpcError) as error:
        _log_failure("workspace not listed for a compaction", error)
        return frozenset()
    return frozenset(file.path for file in reply.files)


def _rank_paths(messages: Sequence[llm_pb2.Message], paths: Collection[str]) -> list[str]:
    mentions = PathMentions(paths)
    for message in messages:
        mentions.read_text("".join(part.text for part in message.content))
        for call in message.tool_calls:
            mentions.read_call(call)
    return mentions.rank_paths()


async def _read_file(peers: Peers, chat_id: str, path: str) -> bytes | None:
    request = tools_pb2.ReadFileRequest(chat_id=chat_id, path=path, length=READ_BYTES_MAX)
    data = bytearray()
    try:
        with translating_peer_errors():
            async with reading(
                peers.tools.ReadFile(request, timeout=UNARY_TIMEOUT_S, metadata=forward_metadata())
            ) as pieces:
                async for piece in pieces:
                    data += piece.data
    except (HeadraceError, grpc.aio.AioRpcError) as error:
        _log_failure("file not read for a compaction", error)
        return None
    return bytes(data)


def _log_failure(event: str, error: HeadraceError | grpc.aio.AioRpcError) -> None:
    log.warning(event, reason=error.reason if isinstance(error, HeadraceError) else error.code().name)
