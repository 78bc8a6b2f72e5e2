"""Users' authorizations at MCP servers: complete, list, revoke."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Collection

import structlog

from headrace.errors import InvalidRequest, NotFound, ProviderUnavailable
from headrace.v1 import tools_pb2
from services.runtime.auth.audit_records import AuditRecords
from services.runtime.auth.identity import Identity, require_identity
from services.tools.mcp_client.oauth.token_store import TokenStore
from services.tools.mcp_client.servers import McpServers

log = structlog.get_logger()


class Authorizations:
    def __init__(self, tokens: TokenStore | None, servers: McpServers, audit: AuditRecords) -> None:
        self._tokens = tokens
        self._servers = servers
        self._audit = audit

    async def forget_all(self, tenant: str, user: str, kept: Collection[str]) -> int:
        """Forget the tokens of a user, or of all users of the tenant except `kept`, and the sessions opened with them;
        return their number."""
        if self._tokens is None:
            return 0
        removed = await asyncio.to_thread(self._tokens.delete_all_of, tenant, user, kept)
        for token in removed:
            self._servers.note_revocation(token.server, {token.header})
        return len(removed)

    async def list_authorized(self, user: Identity) -> list[str]:
        """Return the servers at which the user has authorized Headrace, by name."""
        if self._tokens is None:
            return []
        return [token.server for token in await asyncio.to_thread(self._tokens.list_tokens, user)]

    async def complete(self, request: tools_pb2.CompleteAuthorizationRequest) -> str:
        """Store the tokens of a caller who returns from the authorization server; return the MCP server.

        Raises:
            Overloaded: The audit log cannot be written, and nothing is stored.
            NotFound: The state is unknown, used, expired, or another user's, because no one can consent for another
                user.
            InvalidRequest: It was refused, or comes from another authorization server.
            ProviderUnavailable: The authorization server does not answer.
        """
        # httpx2 is loaded where it is needed.
        from services.tools.mcp_client.oauth.tokens import AuthorizationFailed, TokensRefused, exchange_code

        caller, store = require_identity(), self._tokens
        pending = None if store is None else await asyncio.to_thread(store.take_pending, request.state, caller)
        if store is None or pending is None:
            raise NotFound("this authorization is not on its way: it was used, is over, or is another user's")
        issuer = pending.issuer.issuer
        # The code may be another authorization server's (RFC 9207).
        if request.HasField("issuer"):
            if not hmac.compare_digest(request.issuer.encode(), issuer.encode()):
                raise InvalidRequest.of("issuer", "is not the authorization server that was asked")
        elif pending.says_issuer:
            raise InvalidRequest.of("issuer", "must be given, as this authorization server says it")
        if request.error or not request.code:
            raise InvalidRequest.of("error", "it was refused at the authorization server")
        try:
            token = await exchange_code(pending, request.code, self._servers.find_allow(pending.server))
        except TokensRefused as refusal:
            raise InvalidRequest.of("code", f"is refused: {refusal}") from refusal
        except AuthorizationFailed as failure:
            raise ProviderUnavailable(str(failure)) from failure
        # Audited before it takes effect, so that no authorization is missing in the log.
        await self._audit.record("authorization.granted", caller, server=pending.server, issuer=issuer)
        await asyncio.to_thread(store.put_token, token)
        if pending.issuer.client.is_registered:
            await asyncio.to_thread(
                store.put_client, pending.server, issuer, pending.redirect_url, pending.issuer.client
            )
        log.info("mcp server authorized", server=pending.server, tenant=caller.tenant, user=caller.user)
        return pending.server

    async def list_own(self) -> list[tools_pb2.Authorization]:
        if self._tokens is None:
            return []
        tokens = await asyncio.to_thread(self._tokens.list_tokens, require_identity())
        return [
            tools_pb2.Authorization(
                server=token.server,
                issuer=token.issuer.issuer,
                authorized_at=round(token.agreed_at * 1000),
                expires_at=round(token.expires_at * 1000) or None,
                renewable=bool(token.refresh),
                in_use=self._servers.has_users(token.server),
            )
            for token in tokens
        ]

    async def revoke(self, server: str) -> bool:
        """Forget the caller's tokens; return whether the authorization server confirms that it has, too.

        Raises:
            NotFound: The caller has none.
            Overloaded: The audit log cannot be written, and nothing is changed.
        """
        from services.tools.mcp_client.oauth.tokens import AuthorizationFailed, revoke

        caller, store = require_identity(), self._tokens
        known = None if store is None else await asyncio.to_thread(store.find_token, server, caller)
        if store is None or known is None:
            raise NotFound(f"you have not authorized the MCP server {server!r}, or have revoked it", field="server")
        await self._audit.record("authorization.revoked", caller, server=server, issuer=known.issuer.issuer)
        token = await asyncio.to_thread(store.take_token, server, caller) or known
        self._servers.note_revocation(server, {known.header, token.header})
        log.info("mcp server's authorization revoked", server=server, tenant=caller.tenant, user=caller.user)
        try:
            return await revoke(token, self._servers.find_allow(server))
        except AuthorizationFailed as failure:
            log.warning("tokens not revoked at their issuer", server=server, problem=str(failure))
            return False
