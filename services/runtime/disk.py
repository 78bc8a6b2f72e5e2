"""Durable file names and disk errors."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from headrace.errors import Overloaded


@contextmanager
def disk_errors(what: str, chat_id: str) -> Generator[None]:
    """Raise an OSError of `what` as Overloaded."""
    try:
        yield
    except OSError as error:
        code = error.errno or 0
        raise Overloaded(
            f"the disk refused {what}: {os.strerror(code)}; try again later", chatId=chat_id, errno=code
        ) from error


def sync_folder(folder: Path, sync: Callable[[int], None] = os.fsync) -> None:
    """Make names in the folder durable, without which a synced file may be lost."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync(fd)
    finally:
        os.close(fd)
