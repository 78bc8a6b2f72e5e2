"""DataService with the rules of memory's stores, and an erasure that ends when the test says so."""

import uuid
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

from headrace.errors import Held
from headrace.v1 import data_pb2, data_pb2_grpc
from tests.support.contract import says

_Servicer: Any = data_pb2_grpc.DataServiceServicer

ARCHIVE = b"an archive of "


@dataclass
class ScriptedData(_Servicer):
    erasures: list[data_pb2.Erasure] = field(default_factory=list[data_pb2.Erasure])
    holds: list[data_pb2.Hold] = field(default_factory=list[data_pb2.Hold])

    async def ExportData(self, request: Any, context: Any) -> AsyncGenerator[data_pb2.ExportDataResponse]:
        for piece in (ARCHIVE, (request.user or "the caller").encode()):
            yield data_pb2.ExportDataResponse(data=piece)

    async def EraseData(self, request: Any, context: Any) -> data_pb2.EraseDataResponse:
        for hold in self.holds:
            if not hold.released_at and request.user == hold.user:
                raise Held(f"user {hold.user} is held: nothing of it may be deleted", holdId=hold.hold_id)
        erasure = data_pb2.Erasure(
            erasure_id=str(uuid.uuid4()),
            tenant=request.tenant or "default",
            user=request.user,
            state="going",
            reason=request.reason,
            requested_by="op",
            requested_at=1_790_000_000_000,
        )
        self.erasures.insert(0, erasure)
        return data_pb2.EraseDataResponse(erasure=erasure)

    def finish(self) -> None:
        """Write the receipt of the newest erasure."""
        erasure = self.erasures[0]
        erasure.state, erasure.done_at = "done", 1_790_000_060_000
        erasure.erased.add(name="chats", count=12)
        erasure.erased.add(name="runs_in_others_chats", count=2)
        erasure.kept.add(name="audit_lines", what="31", reason="evidence of who has done what")

    ListErasures = says(lambda self, _: data_pb2.ListErasuresResponse(erasures=self.erasures))

    async def PlaceHold(self, request: Any, context: Any) -> data_pb2.PlaceHoldResponse:
        hold = data_pb2.Hold(
            hold_id=str(uuid.uuid4()),
            tenant="default",
            user=request.user,
            chat_id=request.chat,
            reason=request.reason,
            placed_by="op",
            placed_at=1_790_000_000_000,
        )
        self.holds.insert(0, hold)
        return data_pb2.PlaceHoldResponse(hold=hold)

    async def ListHolds(self, request: Any, context: Any) -> data_pb2.ListHoldsResponse:
        return data_pb2.ListHoldsResponse(holds=[hold for hold in self.holds if request.all or not hold.released_at])

    async def ReleaseHold(self, request: Any, context: Any) -> data_pb2.ReleaseHoldResponse:
        hold = next(hold for hold in self.holds if hold.hold_id == request.hold_id)
        hold.released_by, hold.released_at = "op", 1_790_000_100_000
        return data_pb2.ReleaseHoldResponse(hold=hold)
