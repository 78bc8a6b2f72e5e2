"""A network between clients and a server that can fail silently: nothing gets through, and connections stay open."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit


def find_free_port() -> int:
    """Find a free port for a server whose port must be known before it listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


class Network:
    def __init__(self, target: str) -> None:
        self.url = ""
        """The server's URL through the network."""
        self.is_away = False
        self._target = urlsplit(target)
        self._ends: set[asyncio.StreamWriter] = set()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry a connection's bytes both ways to its end."""
        from_server, to_server = await asyncio.open_connection(self._target.hostname, self._target.port)
        self._ends |= {writer, to_server}
        with suppress(ConnectionError):
            await asyncio.gather(self._pump(reader, to_server), self._pump(from_server, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if not self.is_away:
                writer.write(data)
                await writer.drain()
        writer.close()

    def close(self) -> None:
        for end in self._ends:
            end.transport.abort()


@asynccontextmanager
async def open_network(target: str) -> AsyncGenerator[Network]:
    """Open a network inside the block, with the server at `target` behind it."""
    network = Network(target)
    async with await asyncio.start_server(network.carry, "127.0.0.1") as server:
        network.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield network
        finally:
            network.close()
            await asyncio.sleep(0)
