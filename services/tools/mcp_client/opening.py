"""Connects to a server, as a process or over streamable HTTP."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from errno import ENOENT
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

import httpx2
from mcp import StdioServerParameters, stdio_client
from mcp.client.stdio import DEFAULT_INHERITED_ENV_VARS
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCResponse, jsonrpc_message_adapter
from pydantic import ValidationError

from services.runtime.net.environment_proxy import find_proxy_address
from services.tools.mcp_client.http import ANSWER_BYTES_MAX, ENCODING, FollowedTransport, repair_response
from services.tools.mcp_client.settings import Http, Settings, Stdio
from services.tools.toolkit.commands import TIMEOUT_S_MAX

SOURCE = str(Path(__file__).parents[3])
SUPERVISE = "services.tools.mcp_client.supervise"
START = f"import sys; sys.path.insert(0, {SOURCE!r}); from {SUPERVISE} import main; main()"

CONNECT_S = 10.0

PIPE_BYTES = 1 << 16
"""Capacity of a Linux pipe."""

UNWANTED = (*DEFAULT_INHERITED_ENV_VARS, "GRPC_ENABLE_FORK_SUPPORT")
"""Variables that a server would inherit from the SDK and the supervisor (services/__init__.py)."""


@asynccontextmanager
async def open_transport(
    settings: Settings,
    env: Mapping[str, str],
    authorization: str,
    end: Callable[[], None],
    repair: Callable[[dict[str, Any]], None],
    take_stderr: Callable[[bytes], None],
) -> AsyncGenerator[tuple[Any, Any]]:
    """Connect to a server for the block.

    `end` is called when the server's side ends, which the SDK reports only to callers, `repair` with each result
    before the SDK reads it, and `take_stderr` with what a process writes to standard error. `authorization` is a
    user's Authorization header; empty: the one in the settings. A process is shared by all users.
    """
    if isinstance(settings, Stdio):
        opened = _open_process(settings, env, take_stderr)
    else:
        opened = _open_http(settings, env, authorization)
    async with opened as (read, write):
        yield _ReceiveStream(read, end, repair), write


@asynccontextmanager
async def _open_process(
    settings: Stdio, env: Mapping[str, str], take_stderr: Callable[[bytes], None]
) -> AsyncGenerator[tuple[Any, Any]]:
    # Our own interpreter first: `python` is one that has the SDK.
    path = f"{Path(sys.executable).parent}:{env.get('PATH', '/usr/local/bin:/usr/bin:/bin')}"
    program = settings.command if "/" in settings.command else shutil.which(settings.command, path=path)
    if program is None:
        raise FileNotFoundError(ENOENT, f"there is no program {settings.command!r}")
    environment = {"PATH": path, "HOME": env.get("HOME", "/"), "LANG": "C.UTF-8", **settings.env}
    unwanted = ",".join(name for name in UNWANTED if name not in environment)
    supervisor = ("-I", "-S", "-c", START, str(os.getpid()), unwanted)
    parameters = StdioServerParameters(
        command=sys.executable,
        args=[*supervisor, program, *settings.args],
        env=environment,
        cwd=settings.cwd,
        encoding=ENCODING,
        encoding_error_handler="replace",
    )
    with _reading_stderr(take_stderr) as stderr:
        async with stdio_client(parameters, errlog=stderr) as streams:
            yield streams


@contextmanager
def _reading_stderr(take: Callable[[bytes], None]) -> Generator[TextIO]:
    """Give a file that a process writes to; `take` gets what it writes, at the latest when the block ends."""
    read_fd, write_fd = os.pipe()
    os.set_blocking(read_fd, False)

    def read() -> None:
        with suppress(BlockingIOError):
            take(os.read(read_fd, PIPE_BYTES))

    loop = asyncio.get_running_loop()
    loop.add_reader(read_fd, read)
    try:
        with open(write_fd, "w", encoding="utf-8") as file:
            yield file
    finally:
        loop.remove_reader(read_fd)
        read()
        os.close(read_fd)


@asynccontextmanager
async def _open_http(settings: Http, env: Mapping[str, str], authorization: str) -> AsyncGenerator[tuple[Any, Any]]:
    headers = {"accept-encoding": "identity"} | {name.lower(): value for name, value in settings.headers.items()}
    if authorization:
        headers["authorization"] = authorization
    # A silent server is ended by the call's own time.
    timeout = httpx2.Timeout(CONNECT_S, read=TIMEOUT_S_MAX + CONNECT_S)
    proxy = find_proxy_address(settings.url, env)
    transport = FollowedTransport(proxy=(proxy if "://" in proxy else f"http://{proxy}") if proxy else None)
    async with (
        httpx2.AsyncClient(headers=headers, timeout=timeout, transport=transport) as client,
        streamable_http_client(settings.url, http_client=client, max_sse_event_size=ANSWER_BYTES_MAX) as streams,
    ):
        yield streams


class _ReceiveStream:
    def __init__(self, stream: Any, end: Callable[[], None], repair: Callable[[dict[str, Any]], None]) -> None:
        self._stream = stream
        self._end = end
        self._repair = repair

    @property
    def last_context(self) -> Any:
        return getattr(self._stream, "last_context", None)  # only some of the SDK's streams have it

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            received = await self._stream.__anext__()
        except StopAsyncIteration:
            self._end()
            raise
        if isinstance(received, ValidationError):
            received = _repair_response(received)
        if isinstance(received, SessionMessage) and isinstance(received.message, JSONRPCResponse):
            self._repair(received.message.result)
        return received

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._stream.__aexit__(kind, error, trace)


def _repair_response(error: ValidationError) -> SessionMessage | ValidationError:
    """Return the response that a process sent in a form that the SDK refuses, so that its request need not time out.

    Anything else than a response remains an error of the stream.
    """
    details = error.errors(include_url=False, include_context=False)
    sent = next((one["input"] for one in details if one["loc"] == ("JSONRPCRequest", "method")), None)
    if not isinstance(sent, dict):
        return error
    number = sent.get("id")
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    if not isinstance(number, int | str):
        return error
    return SessionMessage(jsonrpc_message_adapter.validate_python(repair_response(sent, number), by_name=False))
