"""Opens a chat's workspace; no path leads out of it (sandbox/supervisor/kernel.py).

These functions block, and raise OSError, or ValueError for an invalid file name.
"""

from __future__ import annotations

import os
import secrets
import stat
import threading
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from errno import ENOENT
from itertools import islice
from pathlib import Path
from urllib.parse import urlencode

from headrace.errors import InvalidRequest, NotFound
from services.runtime.auth.identity import Identity
from services.runtime.files.disk import disk_errors
from services.runtime.rpc.field_rules import is_uuid
from services.tools.sandbox.supervisor.kernel import open_beneath
from services.tools.sandbox.supervisor.policy import Space
from services.tools.sandbox.supervisor.space_watch import read_spare_bytes
from services.tools.workspace import quota
from services.tools.workspace.owners import Owners
from services.tools.workspace.retention import remove_folder
from services.tools.workspace.tree_walk import DEPTH_MAX, ENTRIES_MAX, fold_name, walk_tree

FOLDERS = ("uploads", "outputs")

LOCKS = 64
"""Number of locks for all chats; chats that share one wait for each other's writes, a few milliseconds."""


@dataclass(frozen=True, slots=True)
class WorkspaceFile:
    path: str
    size_bytes: int
    modified_ns: int = 0


def make_resource_url(chat_id: str, path: str) -> str:
    """Return the address at which the facade serves a file of a chat."""
    return "/api/resource?" + urlencode({"chatId": chat_id, "path": path})


class Workspaces:
    def __init__(self, root: Path, bytes_max: int = quota.BYTES_MAX, reserve_bytes: int = quota.RESERVE_BYTES) -> None:
        self.root = root.absolute()
        self.reserve_bytes = reserve_bytes
        """Room of the disk reserved for chats and records."""
        self.owners = Owners(self.root / ".owners")
        self._bytes_max = bytes_max
        self._locks = tuple(threading.RLock() for _ in range(LOCKS))

    def open_workspace(self, chat_id: str) -> Workspace:
        """Open a workspace, creating it if missing. Raises NotFound if the chat is another user's."""
        folder = self._find_folder(chat_id)
        self.owners.register_chat(chat_id, is_older=folder.is_dir())
        folder.mkdir(parents=True, exist_ok=True)
        for name in FOLDERS:
            with suppress(FileExistsError):  # a command may have put something else in its place
                (folder / name).mkdir()
        return self._make_workspace(chat_id, folder)

    def find_workspace(self, chat_id: str) -> Workspace:
        """Open a workspace. Raises FileNotFoundError if it does not exist, or the chat is another user's."""
        folder = self._find_folder(chat_id)
        if not folder.is_dir() or self.owners.is_foreign(chat_id, is_older=True):
            raise FileNotFoundError(ENOENT, os.strerror(ENOENT))
        return self._make_workspace(chat_id, folder)

    def register_chat(self, chat_id: str) -> None:
        """Make the current user the chat's owner.

        Raises:
            NotFound: It is another user's.
            Overloaded: The disk refused.
        """
        with disk_errors("the owner of a chat's files", chat_id):
            self.owners.register_chat(chat_id, is_older=self._find_folder(chat_id).is_dir())

    def check_owner(self, chat_id: str) -> None:
        """Refuse another user's chat, without claiming one that has no owner; raises the errors of `register_chat`."""
        with disk_errors("the owner of a chat's files", chat_id):
            if self.owners.is_foreign(chat_id, is_older=self._find_folder(chat_id).is_dir()):
                raise NotFound(f"chat {chat_id} does not exist", chatId=chat_id)

    def read_owner(self, chat_id: str) -> Identity | None:
        """Return the owner of the chat's files; None without one. Raises the errors of `register_chat`."""
        with disk_errors("the owner of a chat's files", chat_id):
            return self.owners.read_owner(chat_id, is_older=self._find_folder(chat_id).is_dir())

    def clear_for_owner(self, chat_id: str, owner: Identity) -> None:
        """Remove what another user left in a chat of `owner` before the chat existed, and the claim to it.

        Raises the errors of `register_chat`.
        """
        with disk_errors("the owner of a chat's files", chat_id), self._locks[hash(chat_id) % LOCKS]:
            if self.read_owner(chat_id) in (None, owner):
                return
            for root in (self.root, self.owners.root):
                with suppress(FileNotFoundError):
                    remove_folder(root / chat_id)

    def make_incoming_folder(self) -> Path:
        """Create a folder that commands cannot reach, on the workspaces' file system."""
        folder = self.root / ".incoming"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _find_folder(self, chat_id: str) -> Path:
        if not is_uuid(chat_id):
            raise InvalidRequest.of("chatId", "must be a UUID in lower case")
        return self.root / chat_id

    def _make_workspace(self, chat_id: str, folder: Path) -> Workspace:
        os.utime(folder)  # retention.py goes by this time
        return Workspace(folder, self._bytes_max, self.reserve_bytes, self._locks[hash(chat_id) % LOCKS])


class Workspace:
    """A chat's folder; all paths are relative to it, or begin with it, as in what commands print."""

    def __init__(self, folder: Path, bytes_max: int, reserve_bytes: int, lock: threading.RLock) -> None:
        self.folder = folder
        self._bytes_max = bytes_max
        self._reserve_bytes = reserve_bytes
        self.lock = lock
        """Held from reading a file until it is written again, so that concurrent edits of one file are all kept."""

    def match_path(self, path: str) -> str:
        """Return the path of the file that `open_file` would open; `path` itself if there is none."""
        with self.open_root() as root_fd:
            return _match_names(root_fd, self._make_relative(path))

    def _make_relative(self, path: str) -> str:
        for folder in (str(self.folder), os.path.realpath(self.folder)):
            if path.startswith("/") and f"{path}/".startswith(f"{folder}/"):
                return path[len(folder) :].lstrip("/") or "."
        return path

    @contextmanager
    def open_file(self, path: str) -> Generator[int]:
        """Open a file. Raises ValueError for a folder, a pipe or a device."""
        with self.open_root() as folder_fd:
            # O_NONBLOCK: opening a pipe would wait for its writer.
            fd = _open_lookalike(folder_fd, self._make_relative(path), os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            mode = os.fstat(fd).st_mode
            if stat.S_ISDIR(mode):
                raise ValueError("is a folder")
            if not stat.S_ISREG(mode):
                raise ValueError("is not a file that can be read (a pipe, a socket or a device)")
            yield fd
        finally:
            os.close(fd)

    def write_file(self, path: str, data: bytes) -> None:
        """Replace a file completely or not at all, creating folders as needed. Raises WorkspaceFull.

        It keeps its permissions, and a link to another file of the workspace stays a link.
        """
        path = self._make_relative(path)
        name = path.rstrip("/").rpartition("/")[2]
        if name in ("", ".", "..") or path.endswith("/"):
            raise ValueError("must end with a file name")
        if path.startswith("/"):
            raise ValueError("must be relative to the workspace")
        if path.count("/") >= DEPTH_MAX:  # no list would show it
            raise ValueError(f"must not lie in more than {DEPTH_MAX - 1} folders")
        with self.lock, self.open_root() as root_fd:
            self.check_room(root_fd, len(data))
            folder, _, name = _follow_links(root_fd, path).rpartition("/")
            folder_fd = _make_folders(root_fd, folder)
            try:
                _replace_file(folder_fd, name, data)
            finally:
                os.close(folder_fd)

    def check_room(self, root_fd: int, more_bytes: int, *, is_on_disk: bool = False) -> None:
        """Raise WorkspaceFull, or an OSError if the disk is down to its reserve.

        A file already on disk that is only linked into the workspace uses no more of the reserve.
        """
        quota.check_room(root_fd, more_bytes, self._bytes_max)
        quota.check_reserve(root_fd, 0 if is_on_disk else more_bytes, self._reserve_bytes)

    def measure_space(self) -> tuple[Space, int]:
        """Return the space that a command finds, and the bytes that it may add, 0 if there are too many files."""
        with self.open_root() as fd:
            used = quota.measure_usage(fd, self._bytes_max)
            room_bytes = quota.room_bytes(used, self._bytes_max)
            if self._reserve_bytes:
                room_bytes = max(0, min(room_bytes, read_spare_bytes(fd, self._reserve_bytes)))
        space = Space(
            *(self._bytes_max, quota.FILES_MAX),
            is_full=not room_bytes,
            used_bytes=used.size_bytes,
            reserve_bytes=self._reserve_bytes,
        )
        return space, room_bytes

    def explain_full(self) -> str:
        """Return why nothing can be written; empty if something can."""
        with self.open_root() as fd:
            used = quota.measure_usage(fd, self._bytes_max)
            is_disk_low = self._reserve_bytes > 0 and read_spare_bytes(fd, self._reserve_bytes) <= 0
        if not quota.room_bytes(used, self._bytes_max):
            return (
                f"the workspace is full: {used.size_bytes} of {self._bytes_max} bytes and {used.files} of "
                f"{quota.FILES_MAX} files are used; nothing can be written until files are deleted"
            )
        if is_disk_low:
            return "the disk is full; nothing can be written until somebody makes room"
        return ""

    def list_files(
        self,
        path: str,
        files_max: int,
        *,
        matches: Callable[[str], bool] = lambda _: True,
        depth_max: int = DEPTH_MAX,
    ) -> list[WorkspaceFile]:
        """List files by path, without links; one more than `files_max` means that there are more.

        `matches` is called with the path relative to that folder.
        """
        files: list[WorkspaceFile] = []
        path = self._make_relative(path)
        with self.open_folder(path or ".") as folder_fd, closing(walk_tree(folder_fd, depth_max=depth_max)) as entries:
            for entry in entries:
                if entry.is_file and matches(entry.path):
                    size_bytes, modified_ns = entry.status.st_size, entry.status.st_mtime_ns
                    files.append(
                        WorkspaceFile(os.path.normpath(f"{path or '.'}/{entry.path}"), size_bytes, modified_ns)
                    )
                if len(files) > files_max:
                    break
        return files

    @contextmanager
    def open_folder(self, path: str) -> Generator[int]:
        with self.open_root() as root_fd:
            fd = _open_lookalike(root_fd, path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield fd
        finally:
            os.close(fd)

    @contextmanager
    def open_root(self) -> Generator[int]:
        fd = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield fd
        finally:
            os.close(fd)


def _open_lookalike(root_fd: int, path: str, flags: int) -> int:
    try:
        return open_beneath(root_fd, path, flags)
    except FileNotFoundError:
        return open_beneath(root_fd, _match_names(root_fd, path), flags)


def _match_names(root_fd: int, path: str) -> str:
    """Return the only path with names that look like those of `path`; `path` itself if there is none.

    Of several names, the one in `path` is taken.
    """
    done = "."
    for name in path.split("/"):
        if name in ("", ".", ".."):
            done += f"/{name}"
            continue
        try:
            fd = open_beneath(root_fd, done, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            return path
        try:
            with os.scandir(fd) as entries:
                names = [entry.name for entry in islice(entries, ENTRIES_MAX)]
        finally:
            os.close(fd)
        alike = [name] if name in names else [other for other in names if fold_name(other) == fold_name(name)]
        if len(alike) != 1:
            return path
        done += f"/{alike[0]}"
    return done.removeprefix("./")


def _make_folders(root_fd: int, path: str) -> int:
    # Each step is opened beneath the root and extended by one name.
    fd = open_beneath(root_fd, ".", os.O_PATH | os.O_DIRECTORY)
    done = "."
    for part in path.split("/"):
        if part in ("", "."):
            continue
        try:
            if part != "..":
                os.mkdir(part, dir_fd=fd)
        except FileExistsError:
            pass
        finally:
            os.close(fd)
        done = f"{done}/{part}"
        fd = open_beneath(root_fd, done, os.O_PATH | os.O_DIRECTORY)
    return fd


def _follow_links(root_fd: int, path: str) -> str:
    """Return the path of a link's target file; the link's own path if the target is outside the workspace."""
    try:
        fd = open_beneath(root_fd, path, os.O_PATH)
    except OSError:
        return path
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode) or not os.fstat(fd).st_nlink:
            return path
        return os.path.relpath(os.readlink(f"/proc/self/fd/{fd}"), os.readlink(f"/proc/self/fd/{root_fd}"))
    finally:
        os.close(fd)


def _copy_rights(folder_fd: int, name: str, fd: int) -> None:
    """Give a new file the mode and owner of the file it replaces, if any."""
    try:
        before = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
    except FileNotFoundError:
        return
    if stat.S_ISREG(before.st_mode):
        with suppress(PermissionError):  # it is ours then
            os.fchown(fd, before.st_uid, before.st_gid)
        os.fchmod(fd, before.st_mode & 0o777)


def _replace_file(folder_fd: int, name: str, data: bytes) -> None:
    temporary = f".{secrets.token_hex(8)}.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=folder_fd)
    try:
        with open(fd, "wb") as file:
            file.write(data)
            _copy_rights(folder_fd, name, file.fileno())
        os.rename(temporary, name, src_dir_fd=folder_fd, dst_dir_fd=folder_fd)
    except OSError:
        os.unlink(temporary, dir_fd=folder_fd)
        raise
