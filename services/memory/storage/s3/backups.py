"""Backups in a bucket: a file as pieces `<name>/<number>`, followed by `<name>/complete` with their checksums.

Without `complete` it was interrupted and is not a backup. Pieces are small, so that a failed request costs only one of
them.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from services.memory.storage.s3.requests import Limits

if TYPE_CHECKING:
    from services.memory.storage.s3.bucket import Bucket

PIECE_BYTES = 32 * 1024 * 1024

LIMITS = Limits(patience_s=900.0, connect_s=10.0, silence_s=120.0, attempts_max=6, requests_max=2)
"""No user waits for a backup, so a piece gets the time that a slow line and a temporarily busy store need."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_COMPLETE = "complete"


class BackupProblem(Exception):
    """States the operation that failed, and its backup."""


class Piece(msgspec.Struct, frozen=True):
    sha256: str
    size_bytes: int


class Contents(msgspec.Struct, frozen=True):
    """The content of `complete`."""

    pieces: list[Piece]

    @property
    def size_bytes(self) -> int:
        return sum(piece.size_bytes for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class Backup:
    name: str
    contents: Contents | None
    """None if it was interrupted, is in progress, or `complete` has changed since it was stored."""


async def put_backup(bucket: Bucket, file: Path, piece_bytes: int = PIECE_BYTES) -> Contents:
    """Store a file under its name. Raises BackupProblem if that backup exists, OSError, Overloaded."""
    check_name(file.name)
    if await _find_contents(bucket, file.name) is not None:
        raise BackupProblem(f"{file.name} is there already")
    pieces: list[Piece] = []
    with await asyncio.to_thread(file.open, "rb") as source:
        while data := await asyncio.to_thread(source.read, piece_bytes):
            await bucket.put(_piece_key(file.name, len(pieces)), data)
            pieces.append(Piece(await asyncio.to_thread(_hash, data), len(data)))
    contents = Contents(pieces)
    await bucket.put(f"{file.name}/{_COMPLETE}", msgspec.json.encode(contents))
    return contents


async def get_backup(bucket: Bucket, name: str, target: Path) -> Contents:
    """Write a backup to `target`, which is created only once all of it has been read and verified.

    Raises BackupProblem, OSError, Overloaded.
    """
    check_name(name)
    contents = await _find_contents(bucket, name)
    if contents is None:
        raise BackupProblem(f"backup {name} does not exist or is incomplete")
    if await asyncio.to_thread(target.exists):
        raise BackupProblem(f"{target} is there already")
    unfinished = target.with_name(target.name + ".unfinished")
    try:
        with await asyncio.to_thread(_create, unfinished) as file:
            for number, piece in enumerate(contents.pieces):
                found = await bucket.get(_piece_key(name, number))
                if found is None or await asyncio.to_thread(_hash, found[0]) != piece.sha256:
                    raise BackupProblem(f"{name}: piece {number} differs from what was uploaded")
                await asyncio.to_thread(file.write, found[0])
            await asyncio.to_thread(_sync, file)
        unfinished.rename(target)
    finally:
        unfinished.unlink(missing_ok=True)
    return contents


async def list_backups(bucket: Bucket) -> list[Backup]:
    """List the backups by name."""
    names = sorted([name async for name in bucket.list_folders("") if _NAME.fullmatch(name)])
    return [Backup(name, await _find_good_contents(bucket, name)) for name in names]


async def delete_older(bucket: Bucket, kept_max: int) -> list[str]:
    """Delete all but the last `kept_max` backups by name, and older interrupted ones; return their names."""
    found = await list_backups(bucket)
    complete = [backup.name for backup in found if backup.contents is not None]
    kept = complete[-kept_max:]
    gone = [it.name for it in found if it.name not in kept and complete and it.name < complete[-1]]
    for name in gone:
        # First, so that a half-deleted backup does not count as one.
        await bucket.delete(f"{name}/{_COMPLETE}")
        for entry in [entry async for entry in bucket.list(f"{name}/")]:
            await bucket.delete(entry.key)
    return gone


def check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise BackupProblem(f"{name!r}: expected a name of letters, digits, ., - and _")


async def _find_contents(bucket: Bucket, name: str) -> Contents | None:
    found = await bucket.get(f"{name}/{_COMPLETE}")
    if found is None:
        return None
    try:
        return msgspec.json.decode(found[0], type=Contents)
    except msgspec.DecodeError as error:
        raise BackupProblem(f"{name}/{_COMPLETE} differs from what was uploaded: {error}") from error


async def _find_good_contents(bucket: Bucket, name: str) -> Contents | None:
    try:
        return await _find_contents(bucket, name)
    except BackupProblem:
        return None


def _piece_key(name: str, number: int) -> str:
    return f"{name}/{number:06}"


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _create(path: Path):
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
