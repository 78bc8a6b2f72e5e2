"""A proxy between a client and a server that closes connections: after a time, or on certain bytes."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress


class Proxy:
    def __init__(self, port: int, limit_s: float | None) -> None:
        """`limit_s` is how long a connection lasts after the client's last bytes."""
        self.url = ""
        self._port = port
        self._limit_s = limit_s
        self._requests: dict[asyncio.StreamWriter, bytes] = {}
        """What was last sent on each connection."""

    def cut(self, marker: bytes) -> None:
        """Close the connection whose last request contains these bytes."""
        [connection] = [writer for writer, sent in self._requests.items() if marker in sent]
        connection.transport.abort()

    def close(self) -> None:
        """Close all connections."""
        for connection in self._requests:
            connection.transport.abort()

    def carries(self, marker: bytes) -> bool:
        return any(marker in sent for sent in self._requests.values())

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._requests[writer] = b""
        try:
            from_server, to_server = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            writer.close()
            return
        try:
            with suppress(ConnectionError, TimeoutError):
                async with asyncio.timeout(self._limit_s) as limit, asyncio.TaskGroup() as group:
                    group.create_task(self._carry_requests(reader, writer, to_server, limit))
                    group.create_task(self._carry_responses(from_server, writer))
        except* ConnectionError:
            pass
        finally:
            del self._requests[writer]
            writer.close()
            to_server.close()

    async def _carry_requests(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        to_server: asyncio.StreamWriter,
        limit: asyncio.Timeout,
    ) -> None:
        while data := await reader.read(65536):
            self._requests[writer] = (
                data if data.startswith((b"POST", b"GET", b"DEL")) else self._requests[writer] + data
            )
            if self._limit_s is not None:
                limit.reschedule(asyncio.get_running_loop().time() + self._limit_s)
            to_server.write(data)
            await to_server.drain()
        to_server.write_eof()

    async def _carry_responses(self, from_server: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await from_server.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()


@asynccontextmanager
async def open_proxy(port: int, limit_s: float | None = None) -> AsyncGenerator[Proxy]:
    """Run a proxy for a server on this machine inside the block."""
    proxy = Proxy(port, limit_s)
    async with await asyncio.start_server(proxy.carry, "127.0.0.1") as server:
        proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
        try:
            yield proxy
        finally:
            proxy.close()
            await asyncio.sleep(0)
