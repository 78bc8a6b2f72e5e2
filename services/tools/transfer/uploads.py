from __future__ import annotations

import asyncio
import hashlib
import os
import uuid
from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress
from functools import partial

import orjson
import structlog

from headrace.errors import HeadraceError, InvalidRequest, NotFound, StreamStalled
from headrace.v1 import common_pb2, tools_pb2
from services.runtime.auth import identity
from services.runtime.auth.access import is_keyed_chat, resolve_chat
from services.runtime.capacity import Capacity
from services.tools.transfer import incoming
from services.tools.transfer.incoming import IncomingFile
from services.tools.workspace.chat_rights import ChatRights
from services.tools.workspace.content_types import IMAGE_BYTES_MAX, ContentType, Kind, detect_type
from services.tools.workspace.file_work import file_errors, run_to_end
from services.tools.workspace.workspace import Workspace, Workspaces, make_resource_url

log = structlog.get_logger()

MIB = 1024 * 1024

LIMITS: dict[Kind, int] = {
    "image": IMAGE_BYTES_MAX,
    "audio": 25 * MIB,
    "text": 5 * MIB,
    "pdf": 50 * MIB,
    "office": 20 * MIB,
    "other": 10 * MIB,
}

LOOKED_AT_BYTES = min(LIMITS.values())
"""Size from which the limit is checked after each piece."""

PIECE_BYTES_MAX = MIB

UPLOADS_MAX = 16
"""Maximum concurrent uploads, which take at most 800 MiB of disk and 16 MiB of memory together."""

UPLOAD_S = 600.0
"""Time of an upload, enough for 50 MiB at 87 kB/s."""

HANG_UP_S = 0.1
"""A client that disconnects ends its stream as if complete, and its cancellation follows (grpcio 1.85); an upload of
unknown size waits for that."""

DRAINED_BYTES_MAX = 64 * MIB
DRAIN_S = 60.0

NAMESAKES_MAX = 1000


class Uploads:
    def __init__(
        self,
        workspaces: Workspaces,
        rights: ChatRights | None = None,
        *,
        upload_s: float = UPLOAD_S,
        is_shared: bool = False,
    ) -> None:
        """`rights` are checked before a file is stored; None: only the owner record next to the files counts.

        With `is_shared` several tenants call, and each must leave places for others.
        """
        self._workspaces = workspaces
        self._rights = rights
        self._upload_s = upload_s
        self._places = Capacity(UPLOADS_MAX, is_shared=is_shared)
        self._reducing = asyncio.Lock()
        """Held while a picture is decoded, because one may take much memory."""

        try:
            incoming.remove_leftovers(workspaces.make_incoming_folder())
        except OSError as error:  # a full disk, for example; each upload reports it until there is room
            log.warning("leftovers of uploads not removed", problem=os.strerror(error.errno or 0))

    async def receive_file(self, pieces: AsyncIterator[tools_pb2.UploadFileRequest]) -> tools_pb2.UploadFileResponse:
        """Store one file, completely or not at all.

        Raises:
            InvalidRequest: The name, the size or the content violates a rule.
            NotFound: The chat is another user's, or is opened only with its key.
            QuotaExceeded: The chat's workspace is full.
            Erasing: The caller's data is being erased.
            Overloaded: The tenant has its share of UPLOADS_MAX in progress, or the disk is full.
            StreamStalled: It took too long.
        """
        try:
            in_progress = self._places.using_slot(identity.current_tenant(), "uploads are under way already")
            with in_progress, file_errors("name"):
                async with asyncio.timeout(self._upload_s):
                    return await self._receive_pieces(pieces)
        except TimeoutError:
            raise StreamStalled(f"the upload was not at its end after {self._upload_s:g} s; start again") from None
        except HeadraceError:
            await _drain_pieces(pieces)
            raise

    async def _receive_pieces(self, pieces: AsyncIterator[tools_pb2.UploadFileRequest]) -> tools_pb2.UploadFileResponse:
        with ExitStack() as stack:
            file = await run_to_end(lambda: stack.enter_context(incoming.create_incoming(self._workspaces)))
            start, is_last = await _write_pieces(pieces, file)
            if start.HasField("size_bytes") and start.size_bytes != file.size_bytes:
                raise InvalidRequest.of("start.sizeBytes", f"must be the file's size; {file.size_bytes} bytes came")
            if not (is_last or start.HasField("size_bytes")):
                await asyncio.sleep(HANG_UP_S)
            content = await run_to_end(partial(_check_content, file, start.name))
            if content.kind == "image" and start.folder != "outputs":
                async with self._reducing:
                    await run_to_end(partial(incoming.shrink_file, file.path))
            if self._rights is not None:
                # After the last piece, which may come long after the first one.
                await self._rights.check_new_work()
                chat_id = start.chat_id
                is_known = not chat_id or await self._rights.enter_chat(chat_id, chat_key=start.chat_key)
                if not is_known and is_keyed_chat(chat_id):
                    # Others can compute the id: the first to use it need not be its user.
                    raise NotFound(f"chat {chat_id} does not exist; with chatKey it is opened", chatId=chat_id)
            return await run_to_end(partial(_store_file, self._workspaces, file, start, content))


async def _write_pieces(
    pieces: AsyncIterator[tools_pb2.UploadFileRequest], file: IncomingFile
) -> tuple[tools_pb2.UploadStart, bool]:
    """Write the file's pieces; return the start part, and whether it came last."""
    start: tools_pb2.UploadStart | None = None
    is_last = False
    async for piece in pieces:
        is_last = piece.WhichOneof("part") == "start"
        match piece.WhichOneof("part"):
            case "start" if start is None:
                start = piece.start
                incoming.check_name(start.name)
                start.chat_id = resolve_chat(identity.require_identity(), start.chat_id, start.chat_key)
            case "start":
                raise InvalidRequest.of("start", "must be given once")
            case "data" if len(piece.data) <= PIECE_BYTES_MAX:
                await run_to_end(partial(_append_data, file, piece.data))
            case "data":
                raise InvalidRequest.of("data", f"must not be longer than {PIECE_BYTES_MAX} bytes")
            case None:
                raise InvalidRequest.of("part", "is required")
    if start is None:
        raise InvalidRequest.of("start", "is required")
    return start, is_last


async def _drain_pieces(pieces: AsyncIterator[tools_pb2.UploadFileRequest]) -> None:
    # A client that still writes when refused would see INTERNAL, not why (grpcio 1.85).
    dropped_bytes = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_S):
            async for piece in pieces:
                dropped_bytes += len(piece.data)
                if dropped_bytes > DRAINED_BYTES_MAX:
                    return


def _append_data(file: IncomingFile, data: bytes) -> None:
    file.write(data)
    if file.size_bytes > LOOKED_AT_BYTES:
        # By its beginning, a container that is still growing may turn out to be an office file.
        kind = detect_type(file.fd, "").kind
        _check_size(file, "office" if kind == "other" else kind)


def _check_size(file: IncomingFile, kind: Kind) -> None:
    if file.size_bytes > LIMITS[kind]:
        text = f"is larger than {LIMITS[kind] // MIB} MiB, the limit for this type of file ({kind})"
        raise InvalidRequest.of("file", text)


def _check_content(file: IncomingFile, name: str) -> ContentType:
    content = detect_type(file.fd, name)
    _check_size(file, content.kind)
    return content


def _store_file(
    workspaces: Workspaces, file: IncomingFile, start: tools_pb2.UploadStart, content: ContentType
) -> tools_pb2.UploadFileResponse:
    name = incoming.check_name(start.name)
    with file.path.open("rb") as whole:
        sha256 = hashlib.file_digest(whole, "sha256").hexdigest()
        size_bytes = whole.tell()
    chat_id = start.chat_id or str(uuid.uuid4())
    workspace = workspaces.open_workspace(chat_id)
    known = sha256 if start.request_id else None
    path = _link_into_chat(workspace, file, f"{start.folder or 'uploads'}/{name}", size_bytes, known)
    reference = common_pb2.Reference(
        id=f"file_{hashlib.sha256(path.encode()).hexdigest()[:16]}",  # unique in the chat, as the path is
        type=content.kind,
        name=path.rpartition("/")[2],
        mime_type=content.mime_type,
        size_bytes=size_bytes,
        url=make_resource_url(chat_id, path),
        sha256=sha256,
        meta=orjson.dumps({"path": path}).decode(),
    )
    return tools_pb2.UploadFileResponse(chat_id=chat_id, reference=reference)


def _link_into_chat(workspace: Workspace, file: IncomingFile, path: str, size_bytes: int, sha256: str | None) -> str:
    # With `sha256`, an identical earlier file is reused.
    folder, _, name = path.partition("/")
    with workspace.lock, workspace.open_root() as root_fd, workspace.open_folder(folder) as folder_fd:
        workspace.check_room(root_fd, size_bytes, is_on_disk=True)
        for number in range(1, NAMESAKES_MAX + 1):
            candidate = incoming.number_name(name, number)
            try:
                file.link_into(folder_fd, candidate)
            except FileExistsError:
                if sha256 is None or not _is_same(workspace, f"{folder}/{candidate}", size_bytes, sha256):
                    continue
            return f"{folder}/{candidate}"
    raise InvalidRequest.of("name", f"{NAMESAKES_MAX} files of the chat have it already")


def _is_same(workspace: Workspace, path: str, size_bytes: int, sha256: str) -> bool:
    try:
        with workspace.open_file(path) as fd, open(fd, "rb", closefd=False) as file:
            return os.fstat(fd).st_size == size_bytes and hashlib.file_digest(file, "sha256").hexdigest() == sha256
    except (OSError, ValueError):
        return False  # a folder, a pipe, a link to nowhere
