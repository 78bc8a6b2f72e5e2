"""The roots that mcp.json states. None is a path of this machine, unless the operator has written one."""

from __future__ import annotations

import mcp_types as types
from pydantic import FileUrl

from services.tools.mcp_client.settings import Root


def list_roots(granted: tuple[Root, ...]) -> types.ListRootsResult | types.ErrorData:
    if not granted:
        return types.ErrorData(code=types.INVALID_REQUEST, message="there are no roots")
    return types.ListRootsResult(roots=[types.Root(uri=FileUrl(root.uri), name=root.name or None) for root in granted])
