"""Incoming files: inaccessible to commands until complete, safely named, with large pictures reduced."""

from __future__ import annotations

import os
import secrets
import time
import unicodedata
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from headrace.errors import InvalidRequest
from services.runtime.formats.normal_form import normalize_text
from services.runtime.tokens.image_size import BadPicture, shrink_picture
from services.tools.sandbox.supervisor.sweep import remove_tree
from services.tools.workspace import quota
from services.tools.workspace.workspace import Workspaces

LEFT_S = 3600.0
"""Age at which files of a killed service are removed; no upload takes that long."""

NAME_BYTES_MAX = 255

_REPLACEMENTS = {"Cf": "", **dict.fromkeys(("Cc", "Cs", "Zl", "Zp"), " ")}
"""What replaces invisible format characters, which systems put into names and which can display them backwards; and
controls, half surrogates and line ends."""

_JOINERS = frozenset("\u200c\u200d")
"""Exempt, because emoji and several scripts use these invisible characters."""


class IncomingFile:
    def __init__(self, path: Path, fd: int, reserve_bytes: int) -> None:
        self.path = path
        self.fd = fd
        self.size_bytes = 0
        self._reserve_bytes = reserve_bytes

    def write(self, data: bytes) -> None:
        quota.check_reserve(self.fd, len(data), self._reserve_bytes)
        view = memoryview(data)
        while view:
            written = os.write(self.fd, view)
            self.size_bytes += written
            view = view[written:]

    def link_into(self, folder_fd: int, name: str) -> None:
        """Link the file durably. Raises FileExistsError if the name is taken."""
        os.fsync(self.fd)
        os.link(self.path, name, dst_dir_fd=folder_fd, follow_symlinks=False)
        os.fsync(folder_fd)


@contextmanager
def create_incoming(workspaces: Workspaces) -> Generator[IncomingFile]:
    """Create a file; its name here is removed after the block."""
    path = workspaces.make_incoming_folder() / f"{secrets.token_hex(16)}.part"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        yield IncomingFile(path, fd, workspaces.reserve_bytes)
    finally:
        os.close(fd)
        os.unlink(path)


def remove_leftovers(folder: Path) -> None:
    """Remove old files only, because other services may be receiving into `folder` now."""
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):  # removed by another service, or a disk that fails: they stay until the next start
                if time.time() - entry.stat(follow_symlinks=False).st_mtime > LEFT_S:
                    # A folder is a skill's that was being put into a workspace.
                    remove_tree(entry.path) if entry.is_dir(follow_symlinks=False) else os.unlink(entry.path)


def check_name(name: str) -> str:
    """Return a name composed, without invisible characters, and short enough for a file system.

    Raises InvalidRequest that names the violated rule.
    """
    name = "".join(
        letter if letter in _JOINERS else _REPLACEMENTS.get(unicodedata.category(letter), letter)
        for letter in normalize_text("NFC", name)
    )
    if not name.strip() or name.strip(". ") == "":
        raise InvalidRequest.of("name", "must be a file name")
    if "/" in name or "\\" in name:
        raise InvalidRequest.of("name", "must be a file name without a path")
    if name.startswith("."):
        raise InvalidRequest.of("name", "must not begin with a dot")
    return number_name(name, 1)


def number_name(name: str, number: int) -> str:
    """Return a.txt, a (2).txt …; a long name is shortened before its suffix."""
    stem, dot, suffix = name.rpartition(".")
    if not stem or len(suffix) > 16:
        stem, dot, suffix = name, "", ""
    end = f" ({number}){dot}{suffix}" if number > 1 else dot + suffix
    return stem.encode()[: NAME_BYTES_MAX - len(end.encode())].decode(errors="ignore") + end


def shrink_file(path: Path) -> None:
    """Reduce a picture in `path` that is too large; blocks. Raises InvalidRequest if that is not possible."""
    try:
        with path.open("rb") as file:
            smaller = shrink_picture(file)
    except BadPicture as error:
        raise InvalidRequest.of("file", str(error)) from error
    if smaller is not None:
        path.write_bytes(smaller)
