"""A file system that is really full: one in memory, in the mount namespace of the process that uses it."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from services.runtime.rpc.channels import open_channel

BYTES, INODES = 8 << 20, 300

MOUNT = (
    'mount -t tmpfs -o "size=$1,nr_inodes=$2" none "$3" && { [ -z "$4" ] || head -c 99999999 /dev/zero > "$3/ballast"; '
    'shift 4; exec "$@"; }'
)


def on_small_disk(
    folder: Path, *command: str, size: int = BYTES, inodes: int = INODES, is_full: bool = False
) -> tuple[str, ...]:
    """Wrap a command so that it sees `folder` as a file system of that size."""
    mount = ("sh", "-c", MOUNT, "sh", str(size), str(inodes), str(folder), "full" if is_full else "")
    return ("unshare", "--map-root-user", "--mount", *mount, *command)


def may_mount() -> bool:
    with suppress(OSError):
        command = on_small_disk(Path("/mnt"), "true")
        return subprocess.run(command, check=False, capture_output=True).returncode == 0
    return False


needs_mount = pytest.mark.skipif(not may_mount(), reason="unshare and mount are not allowed on this machine")


@dataclass(frozen=True, slots=True)
class SmallDisk:
    path: Path
    """The disk's folder as this process sees it."""

    @classmethod
    def of_process(cls, pid: int, folder: Path) -> SmallDisk:
        return cls(Path(f"/proc/{pid}/root") / str(folder).lstrip("/"))

    @property
    def ballast(self) -> Path:
        return self.path / "ballast"

    def fill(self, kind: str) -> None:
        """Leave no `bytes`, or no `inodes`."""
        if kind == "bytes":
            with self.ballast.open("wb", buffering=0) as file, suppress(OSError):
                while file.write(bytes(4096)):
                    pass
            return
        self.ballast.mkdir()
        with suppress(OSError):
            for index in itertools.count():
                (self.ballast / str(index)).touch()

    def make_room(self) -> None:
        self.ballast.unlink() if self.ballast.is_file() else shutil.rmtree(self.ballast)


@asynccontextmanager
async def serving_on_small_disk(
    service: str, folder: Path, env: Mapping[str, str], *, size: int = BYTES, is_full: bool = False
) -> AsyncGenerator[tuple[SmallDisk, grpc.aio.Channel]]:
    """Run services.`service` on the disk `folder`, with its socket next to it; `is_full` fills the disk first."""
    address = f"unix:{folder}.socket"
    os.mkdir(folder)
    process = await asyncio.create_subprocess_exec(
        *on_small_disk(folder, sys.executable, "-m", f"services.{service}", size=size, is_full=is_full),
        env={"PATH": os.environ["PATH"], f"HEADRACE_{service.upper()}_LISTEN": address, **env},
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(300), open_channel(address) as channel:
            while b'"serving"' not in (line := await process.stderr.readline()):
                assert line, "the service must come up"
            draining = asyncio.create_task(process.stderr.read())
            yield SmallDisk.of_process(process.pid, folder), channel
            process.terminate()
            assert b"Traceback" not in await draining
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
