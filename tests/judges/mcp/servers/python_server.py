"""A server of the official Python SDK, 1.x or 2.x, whichever is installed. Its argument is its port."""

# Two generations of the SDK have two sets of types; the development environment has one.
# pyright: basic, reportAttributeAccessIssue=false, reportCallIssue=false, reportArgumentType=false

from __future__ import annotations

import asyncio
import sys

port = int(sys.argv[1])
try:
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("judged")
    options = {"host": "127.0.0.1", "port": port}
except ImportError:
    from mcp.server.fastmcp import FastMCP

    server = FastMCP("judged", host="127.0.0.1", port=port)
    options = {}


@server.tool()
async def say(text: str, seconds: float = 0) -> str:
    """Say it after a while."""
    await asyncio.sleep(seconds)
    return text


server.run(transport="streamable-http", **options)
