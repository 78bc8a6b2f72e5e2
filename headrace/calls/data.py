"""The client's calls about data of people."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from headrace.calls.unary import UnaryCalls
from headrace.streams import reading
from headrace.v1 import data_pb2


class DataCalls(UnaryCalls):
    _data: Any

    @asynccontextmanager
    async def export_data(self, user: str = "") -> AsyncGenerator[AsyncIterator[bytes]]:
        """Read everything that is kept of a user, empty: the caller, as the bytes of a tar archive; it is whole if its
        last entry is manifest.json."""
        request = data_pb2.ExportDataRequest(user=user)
        async with reading(self._data.ExportData(request, metadata=self._metadata)) as pieces:
            yield (piece.data async for piece in pieces)

    async def erase_data(
        self, *, user: str = "", tenant: str = "", reason: str = "", request_id: str = ""
    ) -> data_pb2.Erasure:
        """Have a user's data erased, or the caller's whole `tenant`; `erasure` says when that is done."""
        request = data_pb2.EraseDataRequest(user=user, tenant=tenant, reason=reason, request_id=request_id)
        return (await self._send(self._data.EraseData, request)).erasure

    async def erasure(self, erasure_id: str) -> data_pb2.Erasure:
        """Return an erasure: its receipt, where its state is done."""
        request = data_pb2.GetErasureRequest(erasure_id=erasure_id)
        return (await self._send(self._data.GetErasure, request)).erasure

    async def erasures(self) -> list[data_pb2.Erasure]:
        """Return the tenant's erasures, the newest first."""
        return list((await self._send(self._data.ListErasures, data_pb2.ListErasuresRequest())).erasures)

    async def place_hold(
        self, *, reason: str, user: str = "", chat_id: str = "", tenant: str = "", request_id: str = ""
    ) -> data_pb2.Hold:
        """Hold a user's data, a chat, or the caller's whole `tenant`: nothing of it is deleted or erased."""
        request = data_pb2.PlaceHoldRequest(
            user=user, chat=chat_id, tenant=tenant, reason=reason, request_id=request_id
        )
        return (await self._send(self._data.PlaceHold, request)).hold

    async def holds(self, *, include_ended: bool = False) -> list[data_pb2.Hold]:
        """Return the tenant's holds, the newest first."""
        return list((await self._send(self._data.ListHolds, data_pb2.ListHoldsRequest(all=include_ended))).holds)

    async def release_hold(self, hold_id: str) -> data_pb2.Hold:
        """End a hold."""
        return (await self._send(self._data.ReleaseHold, data_pb2.ReleaseHoldRequest(hold_id=hold_id))).hold
