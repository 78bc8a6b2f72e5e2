"""A real MCP server over streamable HTTP: the SDK's, on a separate port, in the test's loop."""

import asyncio
import base64
import json
import socket
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, ImageContent, ResourceLink, TextContent, ToolAnnotations

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


INFO = {"name": "plain", "version": "1"}

JSON = (b"content-type", b"application/json")

UNKNOWN_SESSION = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Session not found"}}'
"""The body of servers of the official SDKs."""


@dataclass(slots=True)
class Http:
    """The server as a test sees it."""

    port: int
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    refused: str = ""
    """The Authorization header that gets status 401."""

    is_legacy: bool = False
    """Whether it knows no version from 2026 on."""

    effects: list[str] = field(default_factory=list[str])
    """What its tools have done."""

    _sessions: set[bytes] = field(default_factory=set[bytes])
    _forgotten: frozenset[bytes] = frozenset()

    def restart(self) -> None:
        """Forget the sessions that there are, as a server that was started anew has."""
        self._forgotten = frozenset(self._sessions - {b""})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def refusing(self, app: Any) -> Any:
        """Return `app` with status 401 for the header that is refused."""

        async def serve(scope: Any, receive: Any, send: Any) -> None:
            headers = dict(scope.get("headers", ()))
            if headers.get(b"mcp-session-id") in self._forgotten:
                await send({"type": "http.response.start", "status": 404, "headers": [JSON]})
                await send({"type": "http.response.body", "body": UNKNOWN_SESSION})
                return
            self._sessions.add(headers.get(b"mcp-session-id", b""))
            if self.is_legacy and headers.get(b"mcp-method") == b"server/discover":
                await send({"type": "http.response.start", "status": 404, "headers": []})
                await send({"type": "http.response.body"})
                return
            given = headers.get(b"authorization", b"").decode()
            if not given or given != self.refused:
                await app(scope, receive, send)
                return
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body"})

        return serve


class PlainApp:
    """A server of the older protocol without the SDK, which can answer with a different id."""

    def __init__(
        self,
        answer_id: Callable[[int], Any] = int,
        refused: Mapping[str, tuple[int, str, bytes]] = MappingProxyType({}),
        **introduction: Any,
    ) -> None:
        """`refused` has status, type and body by method; `introduction` is what it says of itself otherwise than
        others."""
        self._answer_id = answer_id
        self._refused = refused
        self._introduction = introduction

    def streamable_http_app(self) -> Any:
        return self._serve

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        while scope["type"] == "lifespan":
            event = (await receive())["type"]
            await send({"type": f"{event}.complete"})
            if event == "lifespan.shutdown":
                return
        request = json.loads((await receive())["body"] or b"{}")
        if (refusal := self._refused.get(request.get("method", ""))) is not None:
            status, kind, body = refusal
            headers = [(b"content-type", kind.encode())] if kind else []
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": body})
            return
        results: dict[str, Any] = {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "serverInfo": {"name": "a", "version": ""},
                **self._introduction,
            },
            "tools/list": {"tools": [{"name": "plain", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": "done"}]},
        }
        answer: dict[str, Any] = {"error": {"code": -32601, "message": None}}
        if result := results.get(request.get("method", "")):
            answer = {"result": result}
        body = json.dumps(answer | {"id": self._answer_id(request.get("id", 0))}).encode()
        await send({"type": "http.response.start", "status": 200 if "id" in request else 202, "headers": [JSON]})
        await send({"type": "http.response.body", "body": body if "id" in request else b""})


class _Quiet(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield  # they are the test run's


@asynccontextmanager
async def http_server(
    port: int = 0,
    *,
    make_app: Callable[[Http], MCPServer | Server[Any] | PlainApp] | None = None,
    is_legacy: bool = False,
) -> AsyncGenerator[Http]:
    """Serve inside the block, on `port` if it is given."""
    with socket.create_server(("127.0.0.1", port)) as listening:
        http = Http(listening.getsockname()[1], is_legacy=is_legacy)
        app = (make_app or _app)(http).streamable_http_app()
        config = uvicorn.Config(http.refusing(app), log_config=None, lifespan="on", ws="none")
        config.timeout_graceful_shutdown = 0
        server = _Quiet(config)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            yield http
        finally:
            server.should_exit = True
            await serving


def _app(http: Http) -> MCPServer:
    app = MCPServer("scripted")

    @app.tool(annotations=ToolAnnotations(read_only_hint=True))
    def whoami(context: Context) -> str:
        """Tell the Authorization header of the call."""
        return (context.headers or {}).get("authorization", "nobody")

    @app.tool(annotations=ToolAnnotations(idempotent_hint=True))
    def picture() -> CallToolResult:
        """Answer in many forms."""
        data = base64.b64encode(PIXEL).decode()
        return CallToolResult(
            content=[
                TextContent(text="a pixel"),
                Image(data=PIXEL, format="png").to_image_content(),
                ImageContent(data="no base64 " + data, mime_type="image/png"),
                ResourceLink(name="more", uri="https://example.org/more"),
            ]
        )

    @app.tool()
    def structured() -> CallToolResult:
        """Answer with a value only."""
        return CallToolResult(content=[], structured_content={"answer": 42})

    @app.tool()
    def fail() -> str:
        """Fail."""
        raise ToolError("this tool always fails")

    @app.tool()
    async def work(context: Context) -> str:
        """Take 140 s, and tell of it once."""
        await asyncio.sleep(70)
        await context.report_progress(1, 2)
        await asyncio.sleep(70)
        return "done after 140 s"

    @app.tool()
    def long() -> str:
        """Answer with a megabyte."""
        return "x" * 1_000_000

    @app.tool()
    async def wait(context: Context) -> str:
        """Wait until cancelled."""
        await context.report_progress(1, 2, "waiting")
        try:
            await asyncio.sleep(3600)
        finally:
            http.cancelled.set()
        return "waited"

    @app.tool()
    async def grow(context: Context) -> str:
        """Add a tool."""

        def grown() -> str:
            return "grown up"

        app.add_tool(grown)
        await context.notify_tools_changed()
        return "grown"

    return app
