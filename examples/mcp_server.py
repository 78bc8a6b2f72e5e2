"""An MCP server over stdio, with two tools. mcp.json starts it; `headrace up` needs nothing else."""

from __future__ import annotations

import asyncio
import random

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("notes")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def count_words(text: str) -> dict[str, int]:
    """Count the words, characters and lines of a text."""
    return {"words": len(text.split()), "characters": len(text), "lines": len(text.splitlines())}


@server.tool()
async def roll_dice(rolls: int, context: Context) -> str:
    """Roll a die as often as asked for, up to 20 times, telling each roll as it comes."""
    rolls, total = min(rolls, 20), 0
    for number in range(1, rolls + 1):
        total += (rolled := random.randint(1, 6))
        await context.report_progress(number, rolls, f"rolled {rolled}")
        await asyncio.sleep(0.1)
    return f"{rolls} rolls, {total} in all"


if __name__ == "__main__":
    server.run("stdio")
