"""Builds a server's authenticator from its settings, and follows the API keys that memory stores."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from headrace.streams import rpc_errors
from headrace.v1 import keys_pb2
from headrace.v1.keys_pb2_grpc import KeyServiceStub
from services.runtime.auth import settings as words
from services.runtime.auth.api_keys import ApiKeys
from services.runtime.auth.authenticator import Authenticator
from services.runtime.auth.identity import acting_as
from services.runtime.auth.key_calls import TakeCalls
from services.runtime.auth.settings import AuthSettings
from services.runtime.auth.stored_keys import ReadChanges, StoredKeys
from services.runtime.ending import guard_task
from services.runtime.files.file_watch import watching_paths

if TYPE_CHECKING:
    import grpc

    from services.runtime.auth.jwts import FileKeys, JwtVerifier
    from services.runtime.auth.settings import AuthSettings
    from services.runtime.auth.stored_keys import StoredKeys


@asynccontextmanager
async def open_authenticator(
    settings: AuthSettings, keys: StoredKeys | None = None, *, has_certificates: bool
) -> AsyncGenerator[Authenticator]:
    """Yield an authenticator that reads its files again when they change; raises OSError if one is unusable.

    It accepts `keys` in addition to those of its file.
    """
    api_keys = ApiKeys(settings.api_keys_file) if settings.api_keys_file and words.API_KEY in settings.methods else None
    tokens, file_keys = _make_jwt_verifier(settings) if words.JWT in settings.methods else (None, None)
    async with AsyncExitStack() as stack:
        for item in (api_keys, file_keys):
            if item is not None:
                await stack.enter_async_context(watching_paths([item.path], item.reload))
        authenticator = Authenticator(settings, api_keys, tokens, keys, has_certificates=has_certificates)
        stack.callback(guard_task(asyncio.create_task(authenticator.open_calls.watch())).cancel)
        yield authenticator


@asynccontextmanager
async def following_keys(
    settings: AuthSettings, read: ReadChanges, take: TakeCalls | None = None
) -> AsyncGenerator[StoredKeys]:
    """Yield the API keys and suspended users that memory has, read with `read`; nothing if clients present no
    credentials. Calls of keys are taken with `take`, or counted only in this process."""
    keys = StoredKeys(settings.keys_good_s)
    keys.calls.take_from(take)
    if not settings.methods & {words.API_KEY, words.JWT}:
        yield keys
        return
    following = guard_task(asyncio.create_task(keys.follow(read, settings.keys_poll_s)))
    try:
        yield keys
    finally:
        following.cancel()


def _make_jwt_verifier(settings: AuthSettings) -> tuple[JwtVerifier, FileKeys | None]:
    # Imported here: cryptography and an HTTP client take a tenth of a second, and most processes do not need them.
    from services.runtime.auth.jwts import FetchedKeys, FileKeys, JwtVerifier

    file_keys = FileKeys(settings.jwt_keys_file) if settings.jwt_keys_file else None
    keys = file_keys or FetchedKeys(settings.jwks_url)
    return JwtVerifier.from_settings(settings, keys, settings.jwt_issuer, settings.jwt_audience), file_keys


READ_TIMEOUT_S = 1.5
"""With the longest poll interval, and a memory that answers just in time, no ended key is accepted for over 5 s."""


TAKE_TIMEOUT_S = 1.0
"""How long a call waits for a silent memory, once in a while; then calls of its key are counted without memory."""


@asynccontextmanager
async def following_memory_keys(settings: AuthSettings, memory: grpc.aio.Channel) -> AsyncGenerator[StoredKeys]:
    """Yield the API keys of the memory service at the channel `memory`."""
    # Any: the stub's types also cover synchronous channels, which makes each RPC a union.
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
