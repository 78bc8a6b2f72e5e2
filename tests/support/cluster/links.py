"""Links between processes of one machine that can be cut: a socket before another one, and bytes both ways.

A cut link loses nothing: what was sent waits, as TCP sends it again when a network is back. Needs no privileges.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

CHUNK_BYTES = 65536


class Link:
    """One link. New connections are taken while it is cut, and go on when it is mended."""

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
    """A link that is reached at `path` and leads to `target`, both Unix sockets."""
    made = Link(target)
    server = await asyncio.start_unix_server(made.carry, path)
    try:
        yield made
    finally:
        server.close()
        await made.hang_up()
