"""Links between processes on one machine that can be cut: a socket in front of another, with bytes carried both ways.

A cut link loses nothing: bytes wait, as TCP retransmits them when a network is back. It needs no privileges.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

CHUNK_BYTES = 65536


class Link:
    """One link. It accepts new connections while it is cut, and carries them once it is restored."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._mended = asyncio.Event()
        self._mended.set()
        self._ends: set[asyncio.StreamWriter] = set()
        self._carrying: set[asyncio.Task[None] | None] = set()

    def cut(self) -> None:
        self._mended.clear()

    def mend(self) -> None:
        self._mended.set()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, to its end."""
        self._carrying.add(task := asyncio.current_task())
        try:
            await self._carry(reader, writer)
        finally:
            self._carrying.discard(task)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._mended.wait()
        try:
            there, back = await asyncio.open_unix_connection(self._target)
        except OSError:
            writer.transport.abort()
            return
        self._ends |= {writer, back}
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, back))
                group.create_task(self._pump(there, writer))
        finally:
            for end in (writer, back):
                end.transport.abort()
                self._ends.discard(end)

    async def hang_up(self) -> None:
        """End all connections: the test is over."""
        self.mend()
        while tasks := [task for task in self._carrying if task]:
            for end in self._ends:
                end.transport.abort()
            await asyncio.wait(tasks, timeout=0.1)  # those that waited for the link have an end by then

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(CHUNK_BYTES):
                await self._mended.wait()
                writer.write(data)
                await writer.drain()
            await self._mended.wait()
        # Either end's close, or death, is the other's too.
        writer.close()


@asynccontextmanager
async def link(path: Path, target: Path) -> AsyncGenerator[Link]:
    """Run a link from `path` to `target`, both Unix sockets."""
    new_link = Link(target)
    server = await asyncio.start_unix_server(new_link.carry, path)
    try:
        yield new_link
    finally:
        server.close()
        await new_link.hang_up()
