"""Links between the replicas of a test, which can be cut because they go through sockets of the test."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Protocol

from headrace.cli.supervisor.ports import reserve_port
from tests.support.cluster.links import link


class Cut(Protocol):
    """A link that can be cut."""

    def cut(self) -> None: ...

    def mend(self) -> None: ...


class Ways(Protocol):
    """The connections of one cluster; replicas are named like `orchestrator-a`."""

    host: str
    """Host at which replicas reach servers of the test itself."""

    def at(self, replica: str) -> str:
        """Return the address on which a replica listens: unix:PATH, or host:port."""
        ...

    def before(self, replica: str) -> list[str]:
        """Return the prefix of the replica's command."""
        ...

    async def link(self, caller: str, replica: str) -> tuple[str, Cut]:
        """Return the address at which `caller` reaches a replica, and the link in between."""
        ...


class Sockets:
    """Puts a socket of the test in front of each callee; needs no privileges."""

    host = "127.0.0.1"

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._ports: dict[str, int] = {}

    def at(self, replica: str) -> str:
        if replica.startswith("facade"):
            if replica not in self._ports:
                self._ports[replica] = self._stack.enter_context(reserve_port("replica", 0))
            return f"{self.host}:{self._ports[replica]}"
        return f"unix:{self._folder / replica}"

    def before(self, replica: str) -> list[str]:
        return []

    async def link(self, caller: str, replica: str) -> tuple[str, Cut]:
        path = self._folder / f"{caller}~{replica}"
        return f"unix:{path}", await self._stack.enter_async_context(link(path, self._folder / replica))
