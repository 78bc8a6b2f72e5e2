"""Folders in the machine's memory, for tests whose subject is not what a disk keeps: syncs cost nothing there."""

import shutil
from pathlib import Path

TMPFS = Path("/dev/shm")
ROOM_BYTES = 2 << 30
"""A container's is often of 64 MiB, too little for a test's data."""


def find_tmpfs() -> Path | None:
    """Return where folders in memory can be; None: nowhere here."""
    return TMPFS if TMPFS.is_dir() and shutil.disk_usage(TMPFS).free > ROOM_BYTES else None
