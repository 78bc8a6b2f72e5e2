"""What the record of an erasure says while the erasure fails."""

import asyncio
from typing import Any

import grpc
import pytest

from headrace.v1 import data_pb2
from headrace.v1.data_pb2_grpc import DataStoreServiceServicer, add_DataStoreServiceServicer_to_server
from services.orchestrator.data.erasing import Erasing
from services.orchestrator.lifecycle.leases import Owner
from services.orchestrator.peers.stubs import Peers
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.channels import open_channel
from services.runtime.rpc.server import GrpcService, serving_grpc

NOBODY: Any = None
"""The object that ends runs; these tests end none."""


class FailingStore(DataStoreServiceServicer):
    """Hands out one erasure, which fails as given, and collects the problems reported."""

    def __init__(self, failure: grpc.StatusCode | None) -> None:
        self.failure = failure
        self.looks = 0
        self.looked_again = asyncio.Event()
        self.problems: list[str] = []

    async def ClaimErasures(self, request: data_pb2.ClaimErasuresRequest, context: Any) -> Any:
        self.looks += 1
        if self.looks > 2:
            self.looked_again.set()
        erasures = [data_pb2.Erasure(erasure_id="e1", tenant="acme", user="ada")] if self.looks == 1 else []
        return data_pb2.ClaimErasuresResponse(erasures=erasures)

    async def ListErasedRuns(self, request: data_pb2.ListErasedRunsRequest, context: Any) -> Any:
        if self.failure is None:
            raise ValueError("a mistake in memory")
        await context.abort(self.failure, "not here")

    async def FinishErasure(self, request: data_pb2.FinishErasureRequest, context: Any) -> Any:
        self.problems.append(request.problem)
        return data_pb2.FinishErasureResponse()


@pytest.mark.parametrize(
    ("failure", "problem"),
    [(None, "INTERNAL: "), (grpc.StatusCode.DATA_LOSS, "DATA_LOSS: not here"), (grpc.StatusCode.UNIMPLEMENTED, "")],
)
async def test_an_unexpected_error_becomes_the_problem_of_the_record(
    failure: grpc.StatusCode | None, problem: str
) -> None:
    store = FailingStore(failure)  # pyright: ignore[reportAbstractUsage] - the stubs name all RPCs abstract
    served = GrpcService("headrace.v1.DataStoreService", store, add_DataStoreServiceServicer_to_server)
    async with (
        asyncio.timeout(60),
        serving_grpc(ServerSettings(listen="127.0.0.1:0", drain_s=1), [served]) as running,
        open_channel(running.addresses[0]) as channel,
    ):
        peers = Peers.from_channels(llm_gateway=channel, memory=channel, tools=channel)
        erasing = Erasing(peers, NOBODY, Owner("here"), look_s=0.2)
        watching = asyncio.create_task(erasing.watch())
        try:
            await store.looked_again.wait()
        finally:
            watching.cancel()
            await asyncio.wait([watching])
    assert [reported.startswith(problem) for reported in store.problems] == ([True] if problem else [])
