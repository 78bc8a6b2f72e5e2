"""UploadFile: a stream of pieces becomes a file of a chat, whole or not at all."""

from __future__ import annotations

import asyncio
import hashlib
import os
import uuid
from collections.abc import AsyncIterator, Generator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial

from headrace.errors import HeadraceError, InvalidRequest, Overloaded, StreamStalled
from headrace.v1 import tools_pb2
from services.tools.transfer import file_names, incoming, pictures
from services.tools.transfer.file_errors import file_errors
from services.tools.transfer.incoming import Incoming
from services.tools.workspace import quota
from services.tools.workspace.blocking import to_end
from services.tools.workspace.content_types import ContentType, Kind, content_type
from services.tools.workspace.references import reference
from services.tools.workspace.workspace import Workspace, Workspaces

MIB = 1024 * 1024

LIMITS: dict[Kind, int] = {"image": 10 * MIB, "text": 5 * MIB, "pdf": 50 * MIB, "office": 20 * MIB, "other": 10 * MIB}
"""Greatest sizes by kind (tools.md)."""

LOOKED_AT_BYTES = min(LIMITS.values())
"""From here on each piece may be one too many."""

PIECE_BYTES_MAX = MIB

UPLOADS_MAX = 16
"""At a time; together they take 800 MiB of disk at most, and 16 MiB of memory."""

UPLOAD_S = 600.0
"""For a whole upload: 50 MiB at 87 kB/s. A caller that stalls holds a place."""

HANG_UP_S = 0.1
"""A client that leaves ends its stream as one that is done does; its cancellation follows (grpcio 1.85). Without this
wait half a file would be stored as a whole one."""

DRAINED_BYTES_MAX = 64 * MIB
DRAIN_S = 60.0
"""What is still read of a refused upload, the rest of the largest file; none of it is kept."""

NAMESAKES_MAX = 1000
"""Files of one name in a chat."""


class Uploads:
    """Receives files; one for the service."""

    def __init__(self, workspaces: Workspaces, *, upload_s: float = UPLOAD_S) -> None:
        self._workspaces = workspaces
        self._upload_s = upload_s
        self._open = 0
        self._reducing = asyncio.Lock()
        """A decoded picture is large: one at a time."""

        incoming.sweep(workspaces.incoming())

    async def receive(self, pieces: AsyncIterator[tools_pb2.UploadFileRequest]) -> tools_pb2.UploadFileResponse:
        """Store what `pieces` carry. However this is left, nothing but a whole file is.

        Raises:
            InvalidRequest: The name, the size, or what is in the file breaks a rule.
            QuotaExceeded: The chat's workspace is full.
            Overloaded: UPLOADS_MAX are under way, or the disk is full.
            StreamStalled: It took too long.
        """
        try:
            with self._place(), file_errors("name"):
                async with asyncio.timeout(self._upload_s):
                    return await self._receive(pieces)
        except TimeoutError:
            raise StreamStalled(f"the upload was not at its end after {self._upload_s:g} s; start again") from None
        except HeadraceError:
            await _drain(pieces)
            raise

    async def _receive(self, pieces: AsyncIterator[tools_pb2.UploadFileRequest]) -> tools_pb2.UploadFileResponse:
        with ExitStack() as stack:
            file = await to_end(lambda: stack.enter_context(incoming.receiving(self._workspaces.incoming())))
            start, is_last = await _taken(pieces, file)
            if start.HasField("size_bytes") and start.size_bytes != file.size_bytes:
                raise InvalidRequest.of("start.sizeBytes", f"must be the file's size; {file.size_bytes} bytes came")
            if not (is_last or start.HasField("size_bytes")):
                await asyncio.sleep(HANG_UP_S)
            content = await to_end(partial(_checked, file, start.name))
            if content.kind == "image":
                async with self._reducing:
                    await to_end(partial(pictures.reduce, file.path))
            return await to_end(partial(_stored, self._workspaces, file, start, content))

    @contextmanager
    def _place(self) -> Generator[None]:
        if self._open >= UPLOADS_MAX:
            raise Overloaded(f"{UPLOADS_MAX} uploads are under way already; try again later")
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1


async def _taken(
    pieces: AsyncIterator[tools_pb2.UploadFileRequest], file: Incoming
) -> tuple[tools_pb2.UploadStart, bool]:
    """Write all bytes into `file`; what names them, and whether that came last."""
    start: tools_pb2.UploadStart | None = None
    is_last = False
    async for piece in pieces:
        is_last = piece.WhichOneof("part") == "start"
        match piece.WhichOneof("part"):
            case "start" if start is None:
                start = piece.start
                file_names.checked(start.name)
            case "start":
                raise InvalidRequest.of("start", "must be given once")
            case "data" if len(piece.data) <= PIECE_BYTES_MAX:
                await to_end(partial(_append, file, piece.data))
            case "data":
                raise InvalidRequest.of("data", f"must not be longer than {PIECE_BYTES_MAX} bytes")
            case None:
                raise InvalidRequest.of("part", "is required")
    if start is None:
        raise InvalidRequest.of("start", "is required")
    return start, is_last


async def _drain(pieces: AsyncIterator[tools_pb2.UploadFileRequest]) -> None:
    """Read what is left and drop it: a client that still writes when refused sees INTERNAL, not why (grpcio 1.85)."""
    dropped_bytes = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_S):
            async for piece in pieces:
                dropped_bytes += len(piece.data)
                if dropped_bytes > DRAINED_BYTES_MAX:
                    return


def _append(file: Incoming, data: bytes) -> None:
    file.write(data)
    if file.size_bytes > LOOKED_AT_BYTES:
        # By its beginning, a container that is still growing may turn out to be an office file.
        kind = content_type(file.fd, "").kind
        _check_size(file, "office" if kind == "other" else kind)


def _check_size(file: Incoming, kind: Kind) -> None:
    if file.size_bytes > LIMITS[kind]:
        text = f"is larger than {LIMITS[kind] // MIB} MiB, the limit for this type of file ({kind})"
        raise InvalidRequest.of("file", text)


def _checked(file: Incoming, name: str) -> ContentType:
    """What the whole file is, which is not too large for it."""
    content = content_type(file.fd, name)
    _check_size(file, content.kind)
    return content


def _stored(
    workspaces: Workspaces, file: Incoming, start: tools_pb2.UploadStart, content: ContentType
) -> tools_pb2.UploadFileResponse:
    name = file_names.checked(start.name)
    with file.path.open("rb") as whole:
        sha256 = hashlib.file_digest(whole, "sha256").hexdigest()
        size_bytes = whole.tell()
    chat_id = start.chat_id or str(uuid.uuid4())
    workspace = workspaces.open(chat_id)
    path = f"uploads/{_appeared(workspace, file, name, size_bytes, sha256 if start.request_id else None)}"
    return tools_pb2.UploadFileResponse(
        chat_id=chat_id, reference=reference(chat_id, path, content, size_bytes, sha256)
    )


def _appeared(workspace: Workspace, file: Incoming, name: str, size_bytes: int, sha256: str | None) -> str:
    """The name under which the file is in the chat's uploads: with a `sha256`, that of the same file of before."""
    with workspace.lock, workspace.handle() as root_fd, workspace.opening("uploads") as folder_fd:
        quota.check_room(root_fd, size_bytes, workspace.bytes_max)
        for number in range(1, NAMESAKES_MAX + 1):
            candidate = file_names.numbered(name, number)
            try:
                file.appear(folder_fd, candidate)
            except FileExistsError:
                if sha256 is None or not _is_same(workspace, candidate, size_bytes, sha256):
                    continue
            return candidate
    raise InvalidRequest.of("name", f"{NAMESAKES_MAX} files of the chat have it already")


def _is_same(workspace: Workspace, name: str, size_bytes: int, sha256: str) -> bool:
    """Whether the upload of that name has this content."""
    try:
        with workspace.reading(f"uploads/{name}") as fd, open(fd, "rb", closefd=False) as file:
            return os.fstat(fd).st_size == size_bytes and hashlib.file_digest(file, "sha256").hexdigest() == sha256
    except (OSError, ValueError):
        return False  # a folder, a pipe, a link to nowhere
