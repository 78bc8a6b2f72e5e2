"""A wire between a service and its database that can be cut, also right after a message of the service."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

SOCKET = ".s.PGSQL.5432"


class Wire:
    """A socket in `folder` that forwards to the one in `target`."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._ends: set[asyncio.StreamWriter] = set()
        self.is_cut = False
        """No connection gets through."""
        self.swallows = b""
        """A text of the service, used once: it arrives, but its reply and everything after is lost for a moment."""

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
        """End every connection, and refuse new ones."""
        self.is_cut = True
        for end in self._ends:
            end.transport.abort()
        self._ends.clear()

    def mend(self) -> None:
        self.is_cut = False


@asynccontextmanager
async def wire(folder: Path, target: Path) -> AsyncGenerator[Wire]:
    """Run a wire whose socket is in `folder`."""
    new_wire = Wire(target)
    async with await asyncio.start_unix_server(new_wire.carry, folder / SOCKET):
        try:
            yield new_wire
        finally:
            new_wire.cut()
            await asyncio.sleep(0)
