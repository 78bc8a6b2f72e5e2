"""A folder of logs, owned by one process. Everything here blocks.

`disk_errors` maps all errors that callers of the service can see; at start OSError passes unchanged.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path

import structlog

from headrace.errors import LogDamaged
from services.runtime.ending import CannotServe
from services.runtime.files import disk
from services.runtime.rpc.field_rules import is_uuid

HEAD_BYTES = 256

OPEN_MAX = 32
"""Maximum files that one thread has open; most systems allow a process 1,024, including sockets."""

_SUFFIX = ".json"
_DAMAGED, _OLDER = ".damaged", ".v3"
"""Suffixes of files next to a log: an end cut by a crash, and the log it was converted from."""

log = structlog.get_logger()


def disk_errors(chat_id: str) -> AbstractContextManager[None]:
    return disk.disk_errors(f"the log of chat {chat_id}", chat_id)


@dataclass(frozen=True, slots=True)
class Piece:
    chat_id: str
    end: int
    """Offset at which acknowledged data ends."""
    data: bytes


class Disk:
    """An open folder of logs. Several threads may use it, each for different chats at a time."""

    def __init__(
        self,
        folder: Path,
        *,
        sync: Callable[[int], None] | None = None,
        sync_system: Callable[[int], None] = disk.sync_file_system,
    ) -> None:
        """Open and lock `folder`, creating it if missing.

        `sync` makes a file's data durable, by default os.fdatasync; `sync_system` makes a whole disk's data durable.

        Raises:
            OSError: It cannot be created, another process owns it, or other users may access it.
        """
        disk.make_private_folder(folder)
        self.folder = folder
        self._sync, self._sync_system = sync or os.fdatasync, sync_system
        self._lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise CannotServe(f"{folder} belongs to another memory service that runs; give this one its own") from None
        delete_unfinished(folder)

    def close(self) -> None:
        os.close(self._lock)

    def list_logs(self) -> dict[str, tuple[int, int]]:
        """Return length and modification time (ns) of each chat's file."""
        found: dict[str, tuple[int, int]] = {}
        for chat_id in list_log_names(self.folder):
            try:
                status = self._get_path(chat_id).lstat()
            except OSError as error:
                log.error("log cannot be read", chat_id=chat_id, error=str(error))
                continue
            if stat.S_ISREG(status.st_mode):
                found[chat_id] = (status.st_size, status.st_mtime_ns)
            else:
                log.error("log is no regular file", chat_id=chat_id)
        return found

    def has_log(self, chat_id: str) -> bool:
        """Return whether a file with the log's name exists; as fast as switching threads, because systems cache
        names."""
        return os.path.lexists(self._get_path(chat_id))

    def read_log(self, chat_id: str) -> bytes:
        return read_log_file(self.folder, chat_id)

    def read_head(self, chat_id: str) -> bytes:
        """Return the first bytes of a log, enough to tell how it is encrypted."""
        try:
            with open(_open_log(self.folder, chat_id, os.O_RDONLY), "rb", buffering=0) as file:
                return file.read(HEAD_BYTES)
        except FileNotFoundError:
            return b""

    def get_mtime_ns(self, chat_id: str) -> int:
        return self._get_path(chat_id).lstat().st_mtime_ns

    def sync_all(self) -> None:
        """Make all writes and removals durable, including those of an earlier process killed before it synced."""
        self._sync_system(self._lock)

    def create_log(self, chat_id: str, data: bytes) -> int:
        """Create a log with all its lines, atomically; return its modification time (ns).

        Raises:
            FileExistsError: The log exists.
        """
        if self.has_log(chat_id):
            raise FileExistsError(self._get_path(chat_id))
        disk.write_whole(self._get_path(chat_id), data)
        return self.get_mtime_ns(chat_id)

    def append(self, chat_id: str, end: int, data: bytes) -> int:
        """Store `data` at offset `end` of a log, on disk on return; return the file's modification time (ns).

        After an OSError the file is unchanged.

        Raises:
            LogDamaged: The file may hold part of `data`, and must not be written to.
        """
        (outcome,) = self.append_each([Piece(chat_id, end, data)])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def append_each(self, pieces: Sequence[Piece]) -> list[int | OSError | LogDamaged]:
        """Store the pieces, each of another log; return for each the result or error of `append`.

        Several are written before the first sync, which often covers all of them in the file system's journal.
        """
        outcomes: list[int | OSError | LogDamaged] = []
        for first in range(0, len(pieces), OPEN_MAX):
            some = pieces[first : first + OPEN_MAX]
            files = [_catch_disk_error(self._write_piece, piece) for piece in some]
            for piece, fd in zip(some, files, strict=True):
                outcomes.append(_catch_disk_error(self._sync_piece, piece, fd) if isinstance(fd, int) else fd)
        return outcomes

    def _write_piece(self, piece: Piece) -> int:
        # A log that was removed must not reappear with a hole at its beginning.
        create = os.O_CREAT if piece.end == 0 else 0
        fd = _open_log(self.folder, piece.chat_id, os.O_WRONLY | create)
        try:
            with _undoing_on_error(fd, piece):
                rest, at = memoryview(piece.data), piece.end
                while rest:
                    written = os.pwrite(fd, rest, at)
                    rest, at = rest[written:], at + written
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _sync_piece(self, piece: Piece, fd: int) -> int:
        try:
            with _undoing_on_error(fd, piece):
                self._sync(fd)
                if piece.end == 0:
                    os.fsync(self._lock)  # the file's name
                return os.fstat(fd).st_mtime_ns
        finally:
            os.close(fd)

    def set_aside(self, chat_id: str, whole_bytes: int, tail: bytes) -> None:
        """Move the damaged end of a log to a separate file."""
        with open(self._get_sidecar(chat_id, _DAMAGED), "ab") as sidecar:
            sidecar.write(tail)
            sidecar.flush()
            os.fsync(sidecar.fileno())
        os.fsync(self._lock)
        with open(_open_log(self.folder, chat_id, os.O_RDWR), "rb+") as log_file:
            log_file.truncate(whole_bytes)
            os.fsync(log_file.fileno())

    def list_set_aside(self) -> list[str]:
        """List the chats with a separate file for an end that a crash cut."""
        suffix = _SUFFIX + _DAMAGED
        names = (name.removesuffix(suffix) for name in os.listdir(self.folder) if name.endswith(suffix))
        return sorted(filter(is_uuid, names))

    def delete_set_aside(self, chat_id: str) -> None:
        self._get_sidecar(chat_id, _DAMAGED).unlink(missing_ok=True)
        os.fsync(self._lock)

    def replace_log(self, chat_id: str, before: bytes, log: bytes) -> None:
        """Replace a log in an older format by `log`; its previous content `before` is kept in a separate file."""
        disk.write_whole(self._get_sidecar(chat_id, _OLDER), before)
        disk.write_whole(self._get_path(chat_id), log)

    def rewrite_log(self, chat_id: str, log: bytes) -> None:
        """Replace a log by `log`, from which data was removed; a separate end cut by a crash is deleted, too."""
        self._get_sidecar(chat_id, _DAMAGED).unlink(missing_ok=True)
        disk.write_whole(self._get_path(chat_id), log)

    def read_older(self, chat_id: str) -> bytes | None:
        """Return the original of a converted log; None without one."""
        path = self._get_sidecar(chat_id, _OLDER)
        return path.read_bytes() if path.exists() else None

    def write_older(self, chat_id: str, data: bytes) -> None:
        disk.write_whole(self._get_sidecar(chat_id, _OLDER), data)

    def delete_log(self, chat_id: str) -> None:
        for path in (self._get_path(chat_id), *(self._get_sidecar(chat_id, suffix) for suffix in (_DAMAGED, _OLDER))):
            path.unlink(missing_ok=True)
        os.fsync(self._lock)

    def _get_path(self, chat_id: str) -> Path:
        return _make_path(self.folder, chat_id)

    def _get_sidecar(self, chat_id: str, suffix: str) -> Path:
        return self._get_path(chat_id).with_suffix(_SUFFIX + suffix)


def delete_unfinished(folder: Path, before_s: float = inf) -> None:
    """Delete partial files left by a crash, if they were last written before `before_s` (Unix)."""
    for path in folder.glob(".*"):
        with suppress(FileNotFoundError):  # it is whole by now
            if is_uuid(path.name[1:]) and path.stat().st_mtime < before_s:
                path.unlink()


def list_log_names(folder: Path) -> list[str]:
    """List the chats with a log's name in `folder`, whatever kind of file it is."""
    names = (name.removesuffix(_SUFFIX) for name in os.listdir(folder) if name.endswith(_SUFFIX))
    return sorted(filter(is_uuid, names))


def read_log_file(folder: Path, chat_id: str) -> bytes:
    with open(_open_log(folder, chat_id, os.O_RDONLY), "rb") as file:
        return file.read()


def _open_log(folder: Path, chat_id: str, flags: int) -> int:
    """Open a log.

    Raises:
        LogDamaged: The file is a link, a folder, or a FIFO, which would block.
    """
    path = _make_path(folder, chat_id)
    try:
        fd = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise _make_odd_file_error(chat_id) from error
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise _make_odd_file_error(chat_id)
    return fd


def _make_path(folder: Path, chat_id: str) -> Path:
    assert is_uuid(chat_id), "nothing but a UUID becomes a path"
    return folder / (chat_id + _SUFFIX)


def _make_odd_file_error(chat_id: str) -> LogDamaged:
    return LogDamaged(f"the log of chat {chat_id} is no regular file; it is left as it is", chatId=chat_id)


def _catch_disk_error(do: Callable[..., int], *given: object) -> int | OSError | LogDamaged:
    # An error is a value here, so that other pieces continue.
    try:
        return do(*given)
    except (OSError, LogDamaged) as error:
        return error


@contextmanager
def _undoing_on_error(fd: int, piece: Piece) -> Generator[None]:
    try:
        yield
    except OSError:
        with _marking_damaged(piece.chat_id):
            os.ftruncate(fd, piece.end)
        raise


@contextmanager
def _marking_damaged(chat_id: str) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise LogDamaged(
            f"the disk failed in the middle of an append to chat {chat_id}, and its log could not be put right",
            chatId=chat_id,
        ) from error
