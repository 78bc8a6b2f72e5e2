"""A small MCP server on standard input and output, whose tools have the input schemas of a JSON file. Standard library
only; its argument is the file.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

TOOLS = [
    {"name": f"tool_{at}", "description": "A tool.", "inputSchema": schema}
    for at, schema in enumerate(json.loads(Path(sys.argv[1]).read_text()))
]


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        capabilities = {"tools": {}}
        info = {"name": "listing", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": capabilities, "serverInfo": info}
    return {"tools": TOOLS} if method == "tools/list" else {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    if message["method"] in ("initialize", "tools/list", "ping"):
        outcome = {"result": answer(message["method"], message.get("params", {}))}
    else:
        outcome = {"error": {"code": -32601, "message": "no such method"}}
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}) + "\n")
    sys.stdout.flush()
