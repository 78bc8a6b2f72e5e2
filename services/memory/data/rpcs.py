"""DataStoreService: the RPCs."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING

from headrace.v1 import data_pb2, memory_pb2
from headrace.v1.data_pb2_grpc import DataStoreServiceServicer
from services.memory.data.archive import UserArchive
from services.runtime.auth import identity
from services.runtime.auth.identity import Identity, check_scope
from services.runtime.formats.same_fields import copy_fields

if TYPE_CHECKING:
    from services.memory.data.eraser import Eraser
    from services.memory.data.erasures import ErasureStore
    from services.memory.data.holds import HoldStore
    from services.memory.storage.engine import Engine
    from services.memory.storage.records.erasures import StoredErasure, StoredHold
    from services.runtime.rpc.interceptors import Context

PIECE_BYTES = 64 * 1024

RUNS_MAX = 1000

_WAITS = "all data is erased; the receipt waits until every request accepted before the erasure has ended"


class DataStoreService(DataStoreServiceServicer):
    def __init__(self, engine: Engine, erasures: ErasureStore, eraser: Eraser, holds: HoldStore) -> None:
        self._engine = engine
        self._erasures = erasures
        self._eraser = eraser
        self._holds = holds

    async def ReadStoredData(
        self, request: data_pb2.ExportDataRequest, context: Context
    ) -> AsyncGenerator[data_pb2.ArchivePiece]:
        who = identity.require_identity()
        if request.user not in ("", who.user):
            check_scope(who, "admin")
        owner = Identity(who.tenant, request.user or who.user)
        await self._engine.audit.record("data.exported", who, of=owner.user)
        await self._engine.index.wait_until_complete()
        async with aclosing(UserArchive(self._engine, owner).read_entries()) as entries:
            async for entry in entries:
                first = data_pb2.ArchivePiece(
                    name=entry.name, size_bytes=len(entry.data), modified_at=entry.modified_at
                )
                first.data = entry.data[:PIECE_BYTES]
                yield first
                for start in range(PIECE_BYTES, len(entry.data), PIECE_BYTES):
                    yield data_pb2.ArchivePiece(data=entry.data[start : start + PIECE_BYTES])

    async def EraseData(self, request: data_pb2.EraseDataRequest, context: Context) -> data_pb2.EraseDataResponse:
        identity.require_scope("admin")
        return data_pb2.EraseDataResponse(erasure=_make_erasure(await self._erasures.begin(request)))

    async def GetErasure(self, request: data_pb2.GetErasureRequest, context: Context) -> data_pb2.GetErasureResponse:
        identity.require_scope("admin")
        return data_pb2.GetErasureResponse(erasure=_make_erasure(await self._erasures.get(request.erasure_id)))

    async def ListErasures(
        self, request: data_pb2.ListErasuresRequest, context: Context
    ) -> data_pb2.ListErasuresResponse:
        identity.require_scope("admin")
        return data_pb2.ListErasuresResponse(erasures=map(_make_erasure, await self._erasures.list_own()))

    async def PlaceHold(self, request: data_pb2.PlaceHoldRequest, context: Context) -> data_pb2.PlaceHoldResponse:
        identity.require_scope("admin")
        return data_pb2.PlaceHoldResponse(hold=_make_hold(await self._holds.place(request)))

    async def ListHolds(self, request: data_pb2.ListHoldsRequest, context: Context) -> data_pb2.ListHoldsResponse:
        identity.require_scope("admin")
        found = await self._holds.list_own(include_ended=request.all)
        return data_pb2.ListHoldsResponse(holds=map(_make_hold, found))

    async def ReleaseHold(self, request: data_pb2.ReleaseHoldRequest, context: Context) -> data_pb2.ReleaseHoldResponse:
        identity.require_scope("admin")
        return data_pb2.ReleaseHoldResponse(hold=_make_hold(await self._holds.release(request.hold_id)))

    async def ClaimErasures(
        self, request: data_pb2.ClaimErasuresRequest, context: Context
    ) -> data_pb2.ClaimErasuresResponse:
        claimed = await self._erasures.claim(request.owner, request.ttl_ms, request.working_on)
        return data_pb2.ClaimErasuresResponse(erasures=map(_make_erasure, claimed))

    async def ListErasedRuns(
        self, request: data_pb2.ListErasedRunsRequest, context: Context
    ) -> data_pb2.ListErasedRunsResponse:
        erasure = await self._erasures.check_lease(request.erasure_id, request.owner)
        self._erasures.check_ready(erasure)
        runs = await self._eraser.list_live_runs(erasure)
        return data_pb2.ListErasedRunsResponse(
            runs=[
                memory_pb2.UnfinishedRun(
                    run_id=run.run_id, chat_id=run.chat_id, tenant=erasure.tenant, user=run.user, owner=run.owner
                )
                for run in runs[:RUNS_MAX]
            ]
        )

    async def EraseStored(self, request: data_pb2.EraseStoredRequest, context: Context) -> data_pb2.EraseStoredResponse:
        erasure = await self._erasures.check_lease(request.erasure_id, request.owner)
        self._erasures.check_ready(erasure)
        counts = dict(erasure.counts)
        for item in request.erased:
            counts[item.name] = counts.get(item.name, 0) + item.count
        erasure = await self._erasures.prolong(erasure, request.ttl_ms, counts)
        erasure, is_done, passed = await self._eraser.erase_portion(erasure)
        held_chat_ids, held_users = await self._eraser.find_held(erasure)
        redacted = [data_pb2.ChatRuns(chat_id=chat, run_ids=runs) for chat, runs in erasure.redacted.items()]
        return data_pb2.EraseStoredResponse(
            is_done=is_done, redacted=redacted, held_chat_ids=sorted({*held_chat_ids, *passed}), held_users=held_users
        )

    async def FinishErasure(
        self, request: data_pb2.FinishErasureRequest, context: Context
    ) -> data_pb2.FinishErasureResponse:
        erasure = await self._erasures.check_lease(request.erasure_id, request.owner)
        if request.problem:
            changed = await self._erasures.change(erasure, problem=request.problem, owner="", claimed_until=0)
        elif wait_s := self._erasures.get_wait_s(erasure):
            changed = await self._erasures.change(erasure, problem=_WAITS)
            return data_pb2.FinishErasureResponse(erasure=_make_erasure(changed), wait_ms=math.ceil(wait_s * 1000))
        else:
            changed = await self._eraser.finish(erasure)
        return data_pb2.FinishErasureResponse(erasure=_make_erasure(changed))

    async def ListHoldsInForce(
        self, request: data_pb2.ListHoldsInForceRequest, context: Context
    ) -> data_pb2.ListHoldsInForceResponse:
        holds = (await self._holds.read_in_force()).holds
        return data_pb2.ListHoldsInForceResponse(holds=map(_make_hold, holds))

    async def CheckErasure(
        self, request: data_pb2.CheckErasureRequest, context: Context
    ) -> data_pb2.CheckErasureResponse:
        return data_pb2.CheckErasureResponse()  # who is being erased is refused before


def _make_erasure(erasure: StoredErasure) -> data_pb2.Erasure:
    counts = {name: count for name, count in sorted(erasure.counts.items()) if ":" not in name}
    erased = [data_pb2.ErasedItem(name=name, count=count) for name, count in counts.items()]
    kept = [copy_fields(item, data_pb2.KeptItem) for item in erasure.kept]
    return copy_fields(erasure, data_pb2.Erasure, erased=erased, kept=kept)


def _make_hold(hold: StoredHold) -> data_pb2.Hold:
    return copy_fields(hold, data_pb2.Hold)
