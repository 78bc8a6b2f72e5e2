"""How the replicas of a test reach each other, over links that can be cut: through sockets that we stand behind."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Protocol

from headrace.cli.supervisor.ports import reserve_port
from tests.support.cluster.links import link


class Cut(Protocol):
    """A link."""

    def cut(self) -> None: ...

    def mend(self) -> None: ...


class Ways(Protocol):
    """Of one cluster; replicas are named as in `orchestrator-a`."""

    host: str
    """Where replicas find what the test itself serves."""

    def at(self, replica: str) -> str:
        """Where a replica listens: unix:PATH, or host:port."""
        ...

    def before(self, replica: str) -> list[str]:
        """What its command begins with."""
        ...

    async def link(self, caller: str, replica: str) -> tuple[str, Cut]:
        """Where `caller` reaches a replica, and the link that this goes over."""
        ...


class Sockets:
    """A socket of ours before each one that is called. Needs no privileges."""

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
