"""Runs blocking file operations in a thread, with errors described for the model or a caller."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from errno import EACCES, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR, ENXIO, EROFS, EXDEV
from typing import TypeVar

from headrace.errors import InvalidRequest, NotFound, Overloaded, QuotaExceeded
from headrace.regular_files import PASSING
from services.runtime.ending import complete
from services.runtime.files.disk import NO_ROOM, make_full_error
from services.tools.errors import ToolFailed
from services.tools.workspace.quota import WorkspaceFull

T = TypeVar("T")


async def run_in_thread(path: str, work: Callable[[], T]) -> T:
    """Run `work` in a thread. Raises ToolFailed if the file system refuses."""
    try:
        return await asyncio.to_thread(work)
    except WorkspaceFull as error:
        raise ToolFailed(error.text) from error
    except OSError as error:
        if error.errno in (EXDEV, ELOOP):
            raise ToolFailed(f"{path!r} leads out of the workspace; use a path relative to it") from error
        raise ToolFailed(f"{path!r}: {os.strerror(error.errno or 0)}") from error
    except ValueError as error:
        raise ToolFailed(f"{path!r}: {error}") from error


async def run_to_end(work: Callable[[], T]) -> T:
    """Run `work` in a thread; a cancelled caller gets its CancelledError only when the work has ended.

    The caller closes descriptors on leaving; while a thread still runs, their numbers could come to mean other files.
    """
    return await complete(asyncio.to_thread(work))


@contextmanager
def file_errors(field: str) -> Generator[None]:
    """Convert file system errors to a HeadraceError about the path in the request's `field`."""
    try:
        yield
    except WorkspaceFull as error:
        raise QuotaExceeded(error.text) from error
    except OSError as error:
        if error.errno in (ENOENT, ENOTDIR):
            raise NotFound("no such file or folder in the chat's workspace") from error
        if error.errno in (EXDEV, ELOOP):
            raise InvalidRequest.of(field, "leads out of the workspace; must be relative to it") from error
        if error.errno == ENAMETOOLONG:
            raise InvalidRequest.of(field, "has a name that is too long") from error
        if error.errno == EACCES:
            raise InvalidRequest.of(field, "is closed to the service: a command has taken its mode away") from error
        if error.errno == ENXIO:
            raise InvalidRequest.of(field, "is not a file that can be read (a socket or a device)") from error
        if error.errno in NO_ROOM:
            raise make_full_error("files of chats") from error
        if error.errno in (*PASSING, EROFS):
            raise Overloaded(f"the disk for workspaces refused: {error.strerror}; try again later") from error
        raise
    except ValueError as error:
        raise InvalidRequest.of(field, str(error)) from error
