from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from errno import EACCES, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR, ENXIO, EROFS, EXDEV

from headrace.errors import InvalidRequest, NotFound, Overloaded, QuotaExceeded
from headrace.regular_files import PASSING
from services.runtime.files.disk import NO_ROOM, make_full_error
from services.tools.workspace.quota import WorkspaceFull


@contextmanager
def file_errors(field: str) -> Generator[None]:
    """Turns file system errors into a HeadraceError about the path in the request's `field`."""
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
