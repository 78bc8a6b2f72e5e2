"""Changes logs as only somebody who knows the format can: each line gets a new checksum."""

from collections.abc import Callable
from pathlib import Path

from services.memory.log.lines import add_checksum, remove_checksum


def edit_lines(log: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """Change each line without its checksum and line break."""
    return b"".join(add_checksum(change(remove_checksum(line))) + b"\n" for line in log.splitlines())


def edit_log(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(edit_lines(path.read_bytes(), change))


def without_checksums(log: bytes) -> bytes:
    """Return the log as an older version wrote it."""
    return b"".join(remove_checksum(line) + b"\n" for line in log.splitlines())
