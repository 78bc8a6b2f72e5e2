"""Reads API keys from memory, for all services but memory itself."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from headrace.streams import rpc_errors
from headrace.v1 import keys_pb2
from headrace.v1.keys_pb2_grpc import KeyServiceStub
from services.runtime.auth.identity import acting_as
from services.runtime.auth.setup import following_keys

if TYPE_CHECKING:
    import grpc

    from services.runtime.auth.keys.stored_keys import StoredKeys
    from services.runtime.auth.settings import AuthSettings

READ_TIMEOUT_S = 1.5
"""With the longest time from look to look, a memory that just answers in time leaves nobody in for over 5 s."""


TAKE_TIMEOUT_S = 1.0
"""A call waits so long for a memory that is silent, once in a while; then its key's calls are counted without it."""


@asynccontextmanager
async def following_memory_keys(settings: AuthSettings, memory: grpc.aio.Channel) -> AsyncGenerator[StoredKeys]:
    """Yield the API keys that the memory service behind `memory` has."""
    # Any: the stub's types know the RPCs of synchronous channels too, and so each as a union.
    stub: Any = KeyServiceStub(memory)

    async def read_changes(after_revision: int) -> keys_pb2.ReadKeyChangesResponse:
        with acting_as(None), rpc_errors():
            request = keys_pb2.ReadKeyChangesRequest(after_revision=after_revision)
            return await stub.ReadKeyChanges(request, timeout=READ_TIMEOUT_S)

    async def take_calls(key_id: str, wanted: int) -> keys_pb2.TakeKeyCallsResponse:
        with acting_as(None), rpc_errors():
            request = keys_pb2.TakeKeyCallsRequest(key_id=key_id, wanted=wanted)
            return await stub.TakeKeyCalls(request, timeout=TAKE_TIMEOUT_S)

    async with following_keys(settings, read_changes, take_calls) as keys:
        yield keys
