"""What users have authorized Headrace at, as the tools service takes it."""

from __future__ import annotations

from headrace.v1 import tools_pb2
from services.tools.mcp_client.oauth.token_store import TokenStore
from services.tools.mcp_client.servers import McpServers


class Authorizations:
    def __init__(self, tokens: TokenStore | None, servers: McpServers) -> None:
        self._tokens = tokens
        self._servers = servers

    async def complete(self, request: tools_pb2.CompleteAuthorizationRequest) -> str:
        """Return the server that the caller has authorized Headrace at; raises what complete (completion.py) does."""
        from services.tools.mcp_client.oauth.completion import complete  # httpx2 is loaded where it is needed

        server = await complete(self._tokens, request)
        self._servers.note_authorization(server)
        return server
