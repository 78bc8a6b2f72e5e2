"""Archives over HTTP: streamed bytes, a refusal before them, and a truncation that a client notices."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from headrace.errors import Interrupted, PermissionDenied
from headrace.v1 import data_pb2, data_pb2_grpc
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.server import GrpcService, serving_grpc
from tests.support.facade.fronts import PEERS, Timing, embedded

PIECES = [bytes([number]) * 64 * 1024 for number in range(40)]


@dataclass
class ScriptedData(data_pb2_grpc.DataServiceServicer):
    pieces: list[bytes | Exception]
    asked: list[data_pb2.ExportDataRequest] = field(default_factory=list[data_pb2.ExportDataRequest])

    async def ExportData(
        self, request: data_pb2.ExportDataRequest, context: Any
    ) -> AsyncGenerator[data_pb2.ExportDataResponse]:
        self.asked.append(request)
        for piece in self.pieces:
            if isinstance(piece, Exception):
                raise piece
            yield data_pb2.ExportDataResponse(data=piece)


def serve_pieces(*pieces: bytes | Exception) -> ScriptedData:
    return ScriptedData([*pieces])  # pyright: ignore[reportAbstractUsage] - one RPC is asked


@asynccontextmanager
async def opening(folder: Path, peer: ScriptedData) -> AsyncGenerator[aiohttp.ClientSession]:
    address = f"unix:{folder}/peer.sock"
    served = GrpcService("headrace.v1.DataService", peer, data_pb2_grpc.add_DataServiceServicer_to_server)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(serving_grpc(ServerSettings(listen=address, drain_s=0), [served]))
        url = await stack.enter_async_context(embedded(dict.fromkeys(PEERS, address), Timing()))
        yield await stack.enter_async_context(aiohttp.ClientSession(url))


async def test_an_archive_is_streamed_byte_for_byte(tmp_path: Path) -> None:
    peer = serve_pieces(*PIECES)
    async with opening(tmp_path, peer) as http, http.get("/api/data/export", params={"user": "ada"}) as response:
        assert response.status == 200
        assert response.headers["Content-Type"] == "application/x-tar"
        assert response.headers["Content-Disposition"] == 'attachment; filename="headrace-data.tar"'
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["Cache-Control"] == "no-store"
        assert await response.read() == b"".join(PIECES)
    assert peer.asked == [data_pb2.ExportDataRequest(user="ada")]


async def test_a_refusal_is_an_http_error_with_its_status(tmp_path: Path) -> None:
    async with opening(tmp_path, serve_pieces(PermissionDenied("the scope admin is needed"))) as http:
        async with http.get("/api/data/export", params={"user": "ada"}) as response:
            assert (response.status, (await response.json())["error"]["code"]) == (403, "PERMISSION_DENIED")
        async with http.get("/api/data/export", params={"whose": "ada"}) as response:
            assert (response.status, (await response.json())["error"]["code"]) == (400, "INVALID_REQUEST")


async def test_a_truncated_archive_does_not_look_complete(tmp_path: Path) -> None:
    peer = serve_pieces(*PIECES, Interrupted("memory has gone"))
    async with opening(tmp_path, peer) as http, http.get("/api/data/export") as response:
        assert response.status == 200
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.read()
