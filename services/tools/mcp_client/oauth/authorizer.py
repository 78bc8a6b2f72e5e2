"""The tokens of one server's users: found, renewed, asked for."""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict

import structlog

from headrace.v1 import common_pb2
from services.runtime.auth.identity import Identity
from services.tools.errors import InputNeeded, ToolFailed
from services.tools.mcp_client.oauth.authorization import start
from services.tools.mcp_client.oauth.http import AuthorizationFailed, TokensRefused
from services.tools.mcp_client.oauth.token_store import Token, TokenStore
from services.tools.mcp_client.oauth.tokens import is_due, renew
from services.tools.mcp_client.sdk_errors import Challenge
from services.tools.mcp_client.settings import Http

AUTHORIZE = "authorize-"
"""Beginning of the name of what a user is asked."""

COURSE = "authorize"
"""What a call's record keeps while its user is on the way to agree: it begins anew then."""

log = structlog.get_logger()


class Authorizer:
    def __init__(self, server: str, settings: Http, store: TokenStore) -> None:
        self._server = server
        self._settings = settings
        self._store = store
        self._renewing: defaultdict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)

    async def find_header(self, caller: Identity) -> str:
        """Return the user's Authorization header; empty: the user has not agreed, or has to agree anew."""
        token = await asyncio.to_thread(self._store.find_token, self._server, caller)
        if token is not None and is_due(token):
            token = await self._renew(caller, token)
        return token.header if token is not None else ""

    async def ask(self, caller: Identity, refused: str, challenge: Challenge) -> InputNeeded:
        """Return what sends the user to where they agree. `refused` is the header that the server does not take.

        Raises:
            ToolFailed: That place cannot be found.
        """
        token = await asyncio.to_thread(self._store.find_token, self._server, caller)
        if token is not None and token.header == refused:
            await asyncio.to_thread(self._store.delete_token, token)
        try:
            url = await start(self._server, self._settings, self._store, caller, challenge)
        except AuthorizationFailed as failure:
            text = f"MCP server {self._server!r} wants the user's authorization: {failure}"
            raise ToolFailed(text) from failure
        name = AUTHORIZE + hashlib.sha256(url.encode()).hexdigest()[:16]
        message = "Authorize Headrace to use it for you"
        need = common_pb2.InputNeed(name=name, server=self._server, message=message, url=url, authorizes=True)
        return InputNeeded([need], COURSE)

    async def _renew(self, user: Identity, due: Token) -> Token | None:
        # One at a time: a refresh token may be good for one use.
        async with self._renewing[user.tenant, user.user]:
            token = await asyncio.to_thread(self._store.find_token, self._server, user)
            if token is None or not is_due(token):
                return token
            try:
                if not token.refresh:
                    raise TokensRefused("there is no refresh token")
                renewed = await renew(token, self._settings.allow)
            except TokensRefused:
                await asyncio.to_thread(self._store.delete_token, token)
                # Another replica may have used the refresh token just now.
                return await asyncio.to_thread(self._store.find_token, self._server, user)
            except AuthorizationFailed as failure:
                log.warning("token not renewed", server=self._server, problem=str(failure))
                return due  # which its server may take for a minute yet
            is_kept = await asyncio.to_thread(self._store.put_renewed, token, renewed)
            return renewed if is_kept else None
