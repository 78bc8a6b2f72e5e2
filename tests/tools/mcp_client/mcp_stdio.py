"""A small MCP server of the older protocol on standard input and output, run as a process by tests.

Without the SDK it starts at once and can misbehave. Its arguments are a folder it may write to, and more tools.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.stdout.buffer.write("\ufeff".encode() if "mark" in sys.argv else b"")

FOLDER = Path(sys.argv[1])
TOOLS = ["environment", "daemon", "grow", "die", "hang", "stubborn", "noise", *sys.argv[2:]]


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def call(name: str) -> str:
    if name == "environment":
        return json.dumps(dict(os.environ))
    if name == "daemon":
        sleeper = subprocess.Popen(["sleep", "1013.5"], start_new_session=True, stdin=subprocess.DEVNULL)
        return str(sleeper.pid)
    if name == "grow":
        TOOLS.append("grown")
        send({"method": "notifications/tools/list_changed"})
        return "grown"
    if name == "die":
        os._exit(3)
    if name == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            time.sleep(3600)
    if name == "noise":
        sys.stdout.write("this is not JSON\n")
        sys.stderr.write("nor this\n")
        return "noisy"
    return "grown up"


ANSWERS: dict[str, Any] = {
    "limited": b'"error": {"code": -32000, "message": "Rate limit exceeded"}',
    "half": rb'"result": {"content": [{"type": "text", "text": "cut \ud83d"}]}',
    "bytes": b'"result": {"content": [{"type": "text", "text": "M\xfcller"}]}',
    "video": b'"result": {"content": [{"type": "video", "data": "AAAA"}, {"type": "text", "text": "seen"}]}',
    "listing": b'"result": {"content": [], "structuredContent": [1, 2]}',
    "own_types": b"""
        "result": {"content": [{"type": "json", "json": {"doi": 7}}, {"type": "markdown", "text": "# One"}]}""",
    "own_error": b'"result": {"content": [{"type": "error", "text": "Invalid number"}]}',
    "mismatched": b"""
        "result": {"content": [{"type": "text", "text": "created ticket 4711"}], "structuredContent": {"id": "x"}}""",
    "failed": b"""
        "result": {"content": [{"type": "text", "text": "no"}], "structuredContent": {"why": 7}, "isError": true}""",
    "deep": b"""
        "result": {"content": [{"type": "text", "text": "done"}], "structuredContent": {"id": 1}}""",
    "told": b"""
        "result": {"content": [{"type": "text", "text": "{\\"id\\": 7}"}], "structuredContent": {"id": 7}}""",
    "wrapped": b"""
        "result": {"content": [{"type": "text", "text": "line 1\\nline 2"}],
            "structuredContent": {"content": "line 1\\nline 2"}}""",
    "wrapped_json": b"""
        "result": {"content": [{"type": "text", "text": "[\\n {\\"id\\": 7}]"}],
            "structuredContent": {"entities": [{"id": 7}]}}""",
    "wrapped_block": b"""
        "result": {"content": [{"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgoA"}],
            "structuredContent": {"content": [{"type": "image", "data": "iVBORw0KGgoA", "mimeType": "image/png"}]}}""",
    "nulls": b'"result": {"content": null, "structuredContent": {"id": 7}, "isError": null, "_meta": null}',
    "bare_empty": b'"result": {"content": [], "structuredContent": {"result": []}}',
    "bare_value": b'"result": {"structuredContent": {"id": 7}}',
    "bare_text": b'"result": {"content": "done"}',
    "bare_block": b'"result": {"content": {"type": "text", "text": "done"}}',
    "mixed": b"""
        "result": {"content": [
            "one", {"type": "text", "text": {"two": 2}},
            {"type": "text", "text": "three", "annotations": {"priority": 7}},
            {"type": "resource_link", "uri": "a://b", "size": "large"}, {"type": ["text"]}]}""",
    "linked": b"""
        "result": {"content": [{"type": "resource_link", "name": "q3", "uri": "reports://q3", "title": "Quarter",
            "mimeType": "application/pdf", "description": "Revenue"}]}""",
    "data_url": rb"""
        "result": {"content": [{
            "type": "image", "mimeType": "image/png", "data": "data:image/png;base64,iVBORw0KGgo\nA"}]}""",
    "blob": b"""
        "result": {"content": [{"type": "resource", "resource": {
            "uri": "file:///q3.pdf", "mimeType": "application/pdf", "blob": "JVBERi0-"}}]}""",
    "float": b'"result": {"content": [{"type": "text", "text": "done"}]}',
    "untold": b'"error": {"code": -32603, "message": null}',
    "spoken": b'"error": "no such table"',
    "listed": b'"result": [{"type": "text", "text": "done"}]',
}
"""Answers of tools, which are sent as they are."""

WRONG: dict[str, dict[str, Any]] = {
    "unnamed_type": {"inputSchema": {"type": "array"}},
    "no_schema": {"inputSchema": 7},
    "wrong_hints": {"annotations": "readOnly"},
    "deep": {"outputSchema": json.loads('{"type": "object", "not": ' + '{"not": ' * 70 + "{}" + "}" * 71)},
}
"""What is wrong with the description of a tool."""


def listed(name: str) -> dict[str, Any]:
    schema = {"type": "object"} | ({"description": "x" * 200_000} if name == "huge" else {})
    more = {"outputSchema": {"type": "object", "properties": {"id": {"type": "integer"}}}} if name in ANSWERS else {}
    described = {"name": name, "description": "A tool.", "inputSchema": schema} | more | WRONG.get(name, {})
    return {key: value for key, value in described.items() if (name, key) != ("bare", "inputSchema")}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "plain", "version": "1"},
        }
    if method == "tools/list":
        tools = [listed(name) for name in TOOLS]
        if "stuck" in TOOLS:
            return {"tools": tools, "nextCursor": "again"}
        if "gap" in TOOLS:
            return {"tools": tools} if "cursor" in params else {"tools": [], "nextCursor": "2"}
        return {"tools": tools} | ({"nextCursor": "2"} if "torn" in TOOLS else {})
    return {"content": [{"type": "text", "text": call(params["name"])}]}


for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method", ""), message.get("params", {})
    with (FOLDER / "heard").open("a") as heard:
        heard.write(method + "\n")
    if method == "server/discover" and "abrupt" in TOOLS:
        sys.exit("initialize was expected")
    if "id" not in message or params.get("name") == "hang":
        continue
    if params.get("name") in ANSWERS:
        number = b"%d.0" if params["name"] == "float" else b"%d"
        sys.stdout.buffer.write(b'{"jsonrpc": "2.0", "id": ' + number % message["id"] + b", ")
        sys.stdout.buffer.write(ANSWERS[params["name"]].replace(b"\n", b" ") + b"}\n")
        sys.stdout.buffer.flush()
    elif method == "tools/list" and "torn" in TOOLS and "cursor" in params:
        send({"id": message["id"], "error": {"code": -32602, "message": "Invalid cursor"}})
    elif method in ("initialize", "tools/list", "tools/call"):
        send({"id": message["id"], "result": answer(method, params)})
        if method == "tools/list" and "storm" in TOOLS:
            send({"method": "notifications/tools/list_changed"})
    else:
        send({"id": message["id"], "error": {"code": -32601, "message": "no such method"}})
