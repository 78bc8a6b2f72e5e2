"""MCP requests."""

import json
from typing import Any

from services.facade.mcp_server.protocol import META_CAPABILITIES, META_VERSION, MODERN
from tests.support.facade.scripted import Suite, read_all_frames
from tests.support.timing import within

META = {META_VERSION: MODERN, META_CAPABILITIES: {}}
HEADERS = {"Accept": "application/json, text/event-stream"}


async def post(facade: Suite, body: Any, **headers: str) -> tuple[int, Any]:
    """Post a message; return the status and the answer, or the last message of a stream."""
    given = HEADERS | {name.replace("_", "-"): value for name, value in headers.items()}
    async with within(50), facade.http.post("/mcp", json=body, headers=given) as response:
        if response.content_type == "text/event-stream":
            return response.status, json.loads((await read_all_frames(response))[-1].data)
        return response.status, json.loads(await response.read() or b"null")


def ask_modern(method: str, name: str = "", **params: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the body and the headers of a request that states its version."""
    body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": {"_meta": META} | params}
    return body, {"MCP_Protocol_Version": MODERN, "Mcp_Method": method} | ({"Mcp_Name": name} if name else {})
