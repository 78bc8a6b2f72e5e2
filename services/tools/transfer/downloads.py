from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

from headrace.errors import Interrupted, InvalidRequest, OutOfRange
from headrace.v1 import tools_pb2
from services.tools.workspace.content_types import UNKNOWN_TYPE, ContentType, detect_type
from services.tools.workspace.file_work import file_errors, run_to_end
from services.tools.workspace.workspace import Workspace, WorkspaceFile, Workspaces

PIECE_BYTES = 64 * 1024

FILES_MAX = 2000
"""Maximum files in one response; each is opened to detect its type."""

UNKNOWN = ContentType("other", UNKNOWN_TYPE)


@dataclass(frozen=True, slots=True)
class _OpenFile:
    fd: int
    info: tools_pb2.FileInfo
    start: int
    end: int


async def read_file(
    workspaces: Workspaces, request: tools_pb2.ReadFileRequest
) -> AsyncGenerator[tools_pb2.ReadFileResponse]:
    """Stream a range of a file, with its info in the first message; consume this under `aclosing`.

    Raises:
        NotFound: There is no such chat or file.
        InvalidRequest: The path leads out of the workspace, or is not a file.
        OutOfRange: The file ends before the offset.
        Interrupted: The file was truncated in the meantime.
    """
    with ExitStack() as stack:
        with file_errors("path"):
            file = await run_to_end(lambda: stack.enter_context(_open_range(workspaces, request)))
        reply = tools_pb2.ReadFileResponse(info=file.info)
        at = file.start
        while at < file.end:
            with file_errors("path"):
                reply.data = await run_to_end(partial(os.pread, file.fd, min(PIECE_BYTES, file.end - at), at))
            if not reply.data:
                raise Interrupted("the file was cut short while it was read; read it again")
            at += len(reply.data)
            yield reply
            reply = tools_pb2.ReadFileResponse()
        if file.start == file.end:
            yield reply


async def list_files(workspaces: Workspaces, request: tools_pb2.ListFilesRequest) -> tools_pb2.ListFilesResponse:
    """List files by path. Raises NotFound, InvalidRequest."""

    def list_blocking() -> tools_pb2.ListFilesResponse:
        workspace = workspaces.find_workspace(request.chat_id)
        workspace_files = workspace.list_files(request.path, FILES_MAX)
        files = [_describe_file(workspace, file) for file in workspace_files[:FILES_MAX]]
        return tools_pb2.ListFilesResponse(files=files, has_more=len(workspace_files) > FILES_MAX)

    with file_errors("path"):
        return await run_to_end(list_blocking)


@contextmanager
def _open_range(workspaces: Workspaces, request: tools_pb2.ReadFileRequest) -> Generator[_OpenFile]:
    with workspaces.find_workspace(request.chat_id).open_file(request.path) as fd:
        status = os.fstat(fd)
        start, end = _resolve_range(request.offset, request.length, status.st_size)
        info = tools_pb2.FileInfo(
            path=os.path.normpath(request.path),
            size_bytes=status.st_size,
            mime_type=detect_type(fd, request.path).mime_type,
            modified_at=status.st_mtime_ns // 1_000_000,
            # The time of the last change of any kind cannot be set back by who changes the file.
            version=f"{status.st_ino:x}-{status.st_size:x}-{status.st_ctime_ns:x}",
        )
        yield _OpenFile(fd, info, start, end)


def _resolve_range(offset: int, length: int, size_bytes: int) -> tuple[int, int]:
    if length < 0:
        raise InvalidRequest.of("length", "must not be negative")
    start = max(0, size_bytes + offset) if offset < 0 else offset
    if start >= size_bytes and offset != 0:
        raise OutOfRange(f"offset: the file ends at byte {size_bytes}", sizeBytes=size_bytes)
    return start, min(size_bytes, start + length) if length else size_bytes


def _describe_file(workspace: Workspace, file: WorkspaceFile) -> tools_pb2.FileInfo:
    try:
        with workspace.open_file(file.path) as fd:
            content = detect_type(fd, file.path)
    except (OSError, ValueError):
        content = UNKNOWN  # gone, or swapped, since it was listed
    return tools_pb2.FileInfo(
        # A name may hold bytes that are not UTF-8, which Python keeps as lone surrogates.
        path=file.path.encode(errors="replace").decode(),
        size_bytes=file.size_bytes,
        mime_type=content.mime_type,
        modified_at=file.modified_ns // 1_000_000,
    )
