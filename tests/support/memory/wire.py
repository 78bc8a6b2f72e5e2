"""A wire between a service and its database that can be cut, also behind what the service has just sent."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

SOCKET = ".s.PGSQL.5432"


class Wire:
    """A socket in `folder`, in front of the one in `target`."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._ends: set[asyncio.StreamWriter] = set()
        self.is_cut = False
        """Nobody gets through."""
        self.swallows = b""
        """The last words of the service, once: they arrive, and their answer and all after it is lost for a moment."""

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_cut:
            writer.close()
            return
        from_server, to_server = await asyncio.open_unix_connection(self._target / SOCKET)
        self._ends |= {writer, to_server}
        with suppress(ConnectionError):
            await asyncio.gather(self._there(reader, to_server), self._back(from_server, writer))

    async def _there(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            is_last = bool(self.swallows) and self.swallows in data
            if is_last:
                self.is_cut = True
                self.swallows = b""
            writer.write(data)
            if is_last:
                await asyncio.sleep(0.2)  # the server does it
                self.cut()
                asyncio.get_running_loop().call_later(0.3, self.mend)
        writer.close()

    async def _back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if not self.is_cut:
                writer.write(data)
        writer.close()

    def cut(self) -> None:
        """End every connection, and let none be made."""
        self.is_cut = True
        for end in self._ends:
            end.transport.abort()
        self._ends.clear()

    def mend(self) -> None:
        self.is_cut = False


@asynccontextmanager
async def wire(folder: Path, target: Path) -> AsyncGenerator[Wire]:
    """A wire inside the block, to be connected to in `folder`."""
    made = Wire(target)
    async with await asyncio.start_unix_server(made.carry, folder / SOCKET):
        try:
            yield made
        finally:
            made.cut()
            await asyncio.sleep(0)
