"""A real memory service on port 0 over a real folder; only the disk's sync can be replaced, to fail on command."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.v1.memory_pb2_grpc import MemoryServiceStub
from services.memory.__main__ import served
from services.memory.compaction.summariser import SUMMARY_TIMEOUT_S
from services.memory.config import Config
from services.memory.disk import Disk
from services.memory.leases import now_ms
from services.memory.store import HOT_BYTES_MAX, opened
from services.runtime.channels import connect
from services.runtime.config import ServerSettings
from services.runtime.server import serving
from tests.memory.writing import Memory

if TYPE_CHECKING:
    from headrace.v1.llm_pb2_grpc import LlmServiceAsyncStub

Serve = Callable[..., AbstractAsyncContextManager[Memory]]


class HeldSync:
    """fdatasync that can be told to wait, and to fail with "No space left on device" after that."""

    def __init__(self) -> None:
        self.reached, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()
        self.fails = False

    def hold(self) -> None:
        self.reached.clear()
        self.go_on.clear()

    def __call__(self, fd: int) -> None:
        self.reached.set()
        self.go_on.wait(10)
        if self.fails:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fdatasync(fd)


@asynccontextmanager
async def memory_over(
    folder: Path,
    *,
    sync: Callable[[int], None] = os.fdatasync,
    hot_bytes_max: int = HOT_BYTES_MAX,
    clock: Callable[[], int] = now_ms,
    llm: LlmServiceAsyncStub | None = None,
    summary_timeout_s: float = SUMMARY_TIMEOUT_S,
    **config: Any,
) -> AsyncGenerator[Memory]:
    settings = ServerSettings(listen="127.0.0.1:0", drain_s=1)
    with closing(Disk(folder, sync=sync)) as disk:
        async with (
            opened(disk, hot_bytes_max=hot_bytes_max, clock=clock) as store,
            serving(settings, [served(store, Config(**config), llm, summary_timeout_s)]) as running,
            connect(running.addresses[0]) as channel,
        ):
            yield Memory(MemoryServiceStub(channel))


def logs_in(folder: Path) -> list[str]:
    """The files of chats."""
    return sorted(path.name for path in folder.glob("*.json*"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the logs are."""
    return tmp_path / "chats"


@pytest.fixture
def serve(folder: Path) -> Serve:
    """`async with serve() as memory`; again for a restart over the same logs."""

    def start(**options: Any) -> AbstractAsyncContextManager[Memory]:
        return memory_over(folder, **options)

    return start


@pytest.fixture
async def memory(serve: Serve) -> AsyncGenerator[Memory]:
    async with serve() as memory:
        yield memory
