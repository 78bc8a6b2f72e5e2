"""Folders in memory, where syncs cost nothing, for tests that are not about durability."""

import shutil
from pathlib import Path

TMPFS = Path("/dev/shm")
ROOM_BYTES = 2 << 30
"""A container's is often of 64 MiB, too little for a test's data."""


def find_tmpfs() -> Path | None:
    """Return the folder for in-memory folders, or None if this machine has none."""
    return TMPFS if TMPFS.is_dir() and shutil.disk_usage(TMPFS).free > ROOM_BYTES else None
