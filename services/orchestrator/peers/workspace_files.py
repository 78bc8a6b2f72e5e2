"""The files of a chat's workspace: their list, and contents within a bound."""

from __future__ import annotations

import grpc
import structlog

from headrace.errors import HeadraceError, NotFound
from headrace.streams import reading
from headrace.v1 import tools_pb2
from services.orchestrator.peers.stubs import UNARY_TIMEOUT_S, Peers
from services.runtime.rpc.peer_calls import translating_peer_errors

log = structlog.get_logger()


async def read_file(peers: Peers, chat_id: str, path: str, bytes_max: int) -> bytes | None:
    """Return the file's bytes; None if it cannot be read or exceeds `bytes_max`."""
    data = await read_start(peers, chat_id, path, bytes_max + 1)
    return None if data is None or len(data) > bytes_max else data


async def read_start(peers: Peers, chat_id: str, path: str, bytes_max: int) -> bytes | None:
    """Return the first `bytes_max` bytes; None if the file cannot be read."""
    request = tools_pb2.ReadFileRequest(chat_id=chat_id, path=path, length=bytes_max)
    data = bytearray()
    try:
        with translating_peer_errors():
            async with reading(peers.tools.ReadFile(request, timeout=UNARY_TIMEOUT_S)) as pieces:
                async for piece in pieces:
                    data += piece.data
    except (HeadraceError, grpc.aio.AioRpcError) as error:
        log.warning("file not read", chat_id=chat_id, reason=_get_reason(error))
        return None
    return bytes(data)


async def list_workspace(peers: Peers, chat_id: str, folder: str = "") -> tools_pb2.ListFilesResponse | None:
    """List the files; empty without a workspace or folder; None if the tools service fails."""
    request = tools_pb2.ListFilesRequest(chat_id=chat_id, path=folder)
    try:
        return await peers.tools.ListFiles(request)
    except NotFound:
        return tools_pb2.ListFilesResponse()
    except (HeadraceError, grpc.aio.AioRpcError) as error:
        log.warning("workspace not listed", chat_id=chat_id, reason=_get_reason(error))
        return None


def _get_reason(error: HeadraceError | grpc.aio.AioRpcError) -> str:
    return error.reason if isinstance(error, HeadraceError) else error.code().name
