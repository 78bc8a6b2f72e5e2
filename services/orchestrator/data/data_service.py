"""DataService: exports from all services, and what memory keeps of erasures and holds."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from headrace.streams import reading
from headrace.v1 import data_pb2
from headrace.v1.data_pb2_grpc import DataServiceServicer, DataStoreServiceStub
from services.orchestrator.data.archive import Archive
from services.orchestrator.peers.stubs import UNARY_TIMEOUT_S, Peers
from services.runtime.auth.identity import check_scope, require_identity
from services.runtime.rpc.peer_calls import complete_calls, translating_peer_errors

if TYPE_CHECKING:
    import grpc

    from services.runtime.rpc.interceptors import Context

PIECE_BYTES = 64 * 1024


class DataService(DataServiceServicer):
    def __init__(self, memory: grpc.aio.Channel, peers: Peers) -> None:
        # Any: the stub's types know the RPCs of synchronous channels too, and so each as a union.
        self._stored: Any = DataStoreServiceStub(memory)
        complete_calls(self._stored, data_pb2.DESCRIPTOR.services_by_name["DataStoreService"], UNARY_TIMEOUT_S)
        self._tools: Any = peers.tools

    async def ExportData(
        self, request: data_pb2.ExportDataRequest, context: Context
    ) -> AsyncGenerator[data_pb2.ExportDataResponse]:
        who = require_identity()
        if request.user not in ("", who.user):
            check_scope(who, "admin")
        user = request.user or who.user
        wanted = data_pb2.ExportDataRequest(user=user)
        archive = Archive({"tenant": who.tenant, "user": user, "madeBy": who.user})
        buffer = bytearray()
        for read in (self._stored.ReadStoredData, self._tools.ReadOwnedData):
            with translating_peer_errors():
                async with reading(read(wanted)) as pieces, aclosing(archive.pack(pieces)) as packed:
                    async for data in packed:
                        buffer += data
                        if len(buffer) >= PIECE_BYTES:
                            yield data_pb2.ExportDataResponse(data=bytes(buffer))
                            buffer.clear()
        buffer += archive.finish()
        for start in range(0, len(buffer), PIECE_BYTES):
            yield data_pb2.ExportDataResponse(data=bytes(buffer[start : start + PIECE_BYTES]))

    async def EraseData(self, request: data_pb2.EraseDataRequest, context: Context) -> data_pb2.EraseDataResponse:
        return await self._stored.EraseData(request)

    async def GetErasure(self, request: data_pb2.GetErasureRequest, context: Context) -> data_pb2.GetErasureResponse:
        return await self._stored.GetErasure(request)

    async def ListErasures(
        self, request: data_pb2.ListErasuresRequest, context: Context
    ) -> data_pb2.ListErasuresResponse:
        return await self._stored.ListErasures(request)

    async def PlaceHold(self, request: data_pb2.PlaceHoldRequest, context: Context) -> data_pb2.PlaceHoldResponse:
        return await self._stored.PlaceHold(request)

    async def ListHolds(self, request: data_pb2.ListHoldsRequest, context: Context) -> data_pb2.ListHoldsResponse:
        return await self._stored.ListHolds(request)

    async def ReleaseHold(self, request: data_pb2.ReleaseHoldRequest, context: Context) -> data_pb2.ReleaseHoldResponse:
        return await self._stored.ReleaseHold(request)
