"""What a session that many calls share says of questions: they are granted, and asked within the calls alone."""

from __future__ import annotations

import mcp_types as types
from mcp.client.session import ClientRequestContext

from services.tools.mcp_client.asking.roots import list_roots
from services.tools.mcp_client.session import SessionHandlers
from services.tools.mcp_client.settings import Server

ELSEWHERE = types.ErrorData(code=types.INVALID_REQUEST, message="it is to be asked within a call")


def make_shared_handlers(granted: Server) -> SessionHandlers:
    async def refuse(context: ClientRequestContext, params: object) -> types.ErrorData:
        return ELSEWHERE

    async def tell_roots(context: ClientRequestContext) -> types.ListRootsResult | types.ErrorData:
        return list_roots(granted.roots)

    return SessionHandlers(
        sampling=refuse if granted.sampling is not None else None,
        elicitation=refuse if granted.elicitation else None,
        roots=tell_roots if granted.roots else None,
    )
