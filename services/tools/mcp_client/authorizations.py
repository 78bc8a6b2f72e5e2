"""What users have authorized Headrace at, as the tools service takes, lists and revokes it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import structlog

from headrace.errors import NotFound
from headrace.v1 import tools_pb2
from services.runtime.auth.identity import Identity, require_identity
from services.runtime.net.allow_list import AllowList
from services.runtime.rpc.audit_records import AuditRecords
from services.tools.mcp_client.oauth.token_store import Token, TokenStore
from services.tools.mcp_client.servers import McpServers

log = structlog.get_logger()


class Authorizations:
    def __init__(self, tokens: TokenStore | None, servers: McpServers, audit: AuditRecords) -> None:
        self._tokens = tokens
        self._servers = servers
        self._audit = audit

    async def forget_all(self, tenant: str, user: str, kept: Collection[str]) -> int:
        """Forget the tokens of a user, or of all users of the tenant but `kept`, with what was opened with them; return
        how many there were."""
        if self._tokens is None:
            return 0
        removed = await asyncio.to_thread(self._tokens.delete_all_of, tenant, user, kept)
        for token in removed:
            self._servers.note_revocation(token.server, {token.header})
        return len(removed)

    async def list_authorized(self, user: Identity) -> list[str]:
        """Return the servers that the user has authorized Headrace at, by name."""
        if self._tokens is None:
            return []
        return [token.server for token in await asyncio.to_thread(self._tokens.list_tokens, user)]

    async def complete(self, request: tools_pb2.CompleteAuthorizationRequest) -> str:
        """Return the server that the caller has authorized Headrace at; raises what complete (completion.py) does."""
        from services.tools.mcp_client.oauth.completion import complete  # httpx2 is loaded where it is needed

        return await complete(self._tokens, self._audit, self._servers.find_allow, request)

    async def list_own(self) -> list[tools_pb2.Authorization]:
        if self._tokens is None:
            return []
        tokens = await asyncio.to_thread(self._tokens.list_tokens, require_identity())
        return [_describe(token, in_use=self._servers.has_users(token.server)) for token in tokens]

    async def revoke(self, server: str) -> bool:
        """Forget the caller's tokens, and return whether the authorization server says that it has, too.

        Raises:
            NotFound: There are none.
            Overloaded: The audit log cannot be written, and nothing is changed.
        """
        caller, store = require_identity(), self._tokens
        known = None if store is None else await asyncio.to_thread(store.find_token, server, caller)
        if store is None or known is None:
            raise NotFound(f"you have not authorized the MCP server {server!r}, or have taken it back", field="server")
        await self._audit.record("authorization.revoked", caller, server=server, issuer=known.grantor.issuer)
        token = await asyncio.to_thread(store.take_token, server, caller) or known
        self._servers.note_revocation(server, {known.header, token.header})
        log.info("mcp server's authorization revoked", server=server, tenant=caller.tenant, user=caller.user)
        return await _revoke_at_issuer(token, self._servers.find_allow(server))


async def _revoke_at_issuer(token: Token, allow: AllowList) -> bool:
    from services.tools.mcp_client.oauth.tokens import AuthorizationFailed, revoke

    try:
        return await revoke(token, allow)
    except AuthorizationFailed as failure:
        log.warning("tokens not revoked at their issuer", server=token.server, problem=str(failure))
        return False


def _describe(token: Token, *, in_use: bool) -> tools_pb2.Authorization:
    return tools_pb2.Authorization(
        server=token.server,
        issuer=token.grantor.issuer,
        authorized_at=round(token.agreed_at * 1000),
        expires_at=round(token.expires_at * 1000) or None,
        renewable=bool(token.refresh),
        in_use=in_use,
    )
