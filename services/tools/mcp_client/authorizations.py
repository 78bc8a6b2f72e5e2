"""What users have authorized Headrace at, as the tools service takes it."""

from __future__ import annotations

import asyncio

from headrace.v1 import tools_pb2
from services.runtime.auth.identity import Identity
from services.tools.mcp_client.oauth.token_store import TokenStore
from services.tools.mcp_client.servers import McpServers


class Authorizations:
    def __init__(self, tokens: TokenStore | None, servers: McpServers) -> None:
        self._tokens = tokens
        self._servers = servers

    @property
    def tokens(self) -> TokenStore | None:
        """What users have authorized; None where no server can be."""
        return self._tokens

    async def list_authorized(self, user: Identity) -> list[str]:
        """Return the servers that the user has authorized Headrace at, by name."""
        if (tokens := self._tokens) is None:
            return []
        found = await asyncio.to_thread(
            lambda: [name for name in self._servers.list_names() if tokens.find_token(name, user) is not None]
        )
        return sorted(found)

    async def complete(self, request: tools_pb2.CompleteAuthorizationRequest) -> str:
        """Return the server that the caller has authorized Headrace at; raises what complete (completion.py) does."""
        from services.tools.mcp_client.oauth.completion import complete  # httpx2 is loaded where it is needed

        server = await complete(self._tokens, request)
        self._servers.note_authorization(server)
        return server
