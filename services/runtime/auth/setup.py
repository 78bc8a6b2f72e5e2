"""Builds a server's authenticator from its settings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from services.runtime.auth import settings as words
from services.runtime.auth.authenticator import Authenticator
from services.runtime.auth.keys.api_keys import ApiKeys
from services.runtime.auth.keys.key_calls import TakeCalls
from services.runtime.auth.keys.stored_keys import ReadChanges, StoredKeys
from services.runtime.auth.settings import AuthSettings
from services.runtime.ending import guard_task
from services.runtime.files.file_watch import watching_paths

if TYPE_CHECKING:
    from services.runtime.auth.tokens.jwt_keys import FileKeys
    from services.runtime.auth.tokens.jwts import JwtVerifier


@asynccontextmanager
async def open_authenticator(
    settings: AuthSettings, keys: StoredKeys | None = None, *, has_certificates: bool
) -> AsyncGenerator[Authenticator]:
    """Yield an authenticator whose files are read again when they change; raises OSError if one cannot be used.

    It takes `keys` beside those of its file.
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
    """Yield the API keys that memory has and who is suspended, as `read` tells them; nothing where nobody shows a
    credential. Calls of keys are taken by `take`, or counted here alone."""
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
    # A tenth of a second to import, cryptography and an HTTP client: most have no use for them.
    from services.runtime.auth.tokens.jwt_keys import FetchedKeys, FileKeys
    from services.runtime.auth.tokens.jwts import JwtVerifier

    file_keys = FileKeys(settings.jwt_keys_file) if settings.jwt_keys_file else None
    keys = file_keys or FetchedKeys(settings.jwks_url)
    return JwtVerifier.from_settings(settings, keys, settings.jwt_issuer, settings.jwt_audience), file_keys
