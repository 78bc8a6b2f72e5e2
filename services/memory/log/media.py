"""Images, audio and files of messages: stored next to the log as blobs named by their content, restored for readers."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TypeAlias

import structlog

from headrace.errors import InvalidRequest
from headrace.v1 import llm_pb2

SCHEME = "blob:"

_ID = re.compile(r"[0-9a-f]{64}")
_MIME = re.compile(r"[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+(;[ -~]*)?")
_FALLBACK = "application/octet-stream"

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Blob:
    mime_type: str
    data: bytes

    @property
    def id(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @property
    def reference(self) -> str:
        return SCHEME + self.id

    def encode(self) -> bytes:
        return self.mime_type.encode() + b"\n" + self.data

    @classmethod
    def decode(cls, stored: bytes) -> Blob:
        """Return the argument of `encode`; other data becomes a blob with a different id."""
        mime_type, _, data = stored.partition(b"\n")
        return cls(mime_type.decode("ascii", "replace"), data)

    @classmethod
    def create(cls, mime_type: str, data: bytes) -> Blob:
        """Create a blob from a caller's data.

        Raises:
            InvalidRequest: The MIME type is not valid.
        """
        if mime_type and not _MIME.fullmatch(mime_type):
            raise InvalidRequest.of("mimeType", "must be a MIME type such as image/png")
        return cls(mime_type or _FALLBACK, data)

    def check_id(self, chat_id: str, blob_id: str) -> Blob | None:
        """Return the blob if its id is `blob_id`; if the store damaged it, log that and return None."""
        if self.id == blob_id:
            return self
        log.error("blob damaged", chat_id=chat_id, blob_id=blob_id)
        return None


def is_blob_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def parse_reference(reference: str) -> str | None:
    """Return the blob id in a log's URL; None for any other URL."""
    found = reference.removeprefix(SCHEME)
    return found if reference.startswith(SCHEME) and is_blob_id(found) else None


FindBlob = Callable[[str], Blob | None]
"""Finds a blob by id, if the chat has it; may block."""

MediaPart: TypeAlias = llm_pb2.ImagePart | llm_pb2.AudioPart | llm_pb2.FilePart

CAPABILITIES: dict[type[MediaPart], str] = {
    llm_pb2.ImagePart: "vision",
    llm_pb2.AudioPart: "audio",
    llm_pb2.FilePart: "files",
}

UNSEEN = "{}: shown in an earlier turn"

READER = "read_history"
"""The call that finds a message with an unknown line number."""

PARTS_MAX, PARTS_STEP = 30, 10
"""Maximum images, audio and files in a request. The oldest are left out ten at a time, so that most turns begin like
the one before and hit the provider's cache."""

BYTES_MAX = 24 * 1024 * 1024
"""Maximum bytes of them, about 32 MB in base64, which providers accept."""

_REFERENCE = re.compile(rb'"url":"%b([0-9a-f]{64})"' % SCHEME.encode())
_DATA_URL = re.compile(r"data:([^;,]*)((?:;[^;,]*)*),")


def get_media(part: llm_pb2.ContentPart) -> MediaPart | None:
    """Return the image, audio or file of a part; None for text."""
    match part.WhichOneof("part"):
        case "image":
            return part.image
        case "audio":
            return part.audio
        case "file":
            return part.file
        case _:
            return None


def describe_media(part: MediaPart, where: str = "") -> str:
    """Return a description of media that a model does not see; `where` is the call that shows it again."""
    again = f", {where} shows it again" if where else ""
    match part:
        case llm_pb2.ImagePart() if part.url and not part.url.startswith(("data:", SCHEME)):
            return f"[image: {part.url.rpartition('/')[2]}, {part.url}]"
        case llm_pb2.ImagePart():
            return f"[image{again}]"
        case llm_pb2.AudioPart():
            return f"[audio{again}]"
        case llm_pb2.FilePart():
            return f"[file: {part.name}{again}]"


def name_reader(message: llm_pb2.Message, n: int) -> str:
    """Return the call that reads a message of line `n` again, in words for the model."""
    return f"read_result {json.dumps(message.tool_call_id)}" if message.role == "tool" else f"read_history {n}"


def extract_blob(part: MediaPart, path: str) -> Blob | None:
    """Return a part's own content; None if its URL points elsewhere. `path` names it in an error.

    Raises:
        InvalidRequest: The content cannot be read.
    """
    if part.data:
        return Blob.create(part.mime_type, part.data)
    head = _DATA_URL.match(part.url)
    if head is None or not head[2].endswith(";base64"):
        return None
    try:
        return Blob.create(head[1], base64.b64decode(part.url[head.end() :], validate=True))
    except binascii.Error:
        raise InvalidRequest.of(path, "must be valid base64") from None


def fill_media(messages: Iterable[llm_pb2.Message], find: FindBlob, capabilities: Collection[str] = ()) -> bool:
    """Replace the log's references by content, newest first, as far as it fits; describe media the model does not
    accept.

    `capabilities` are the model's, empty if unknown. Return whether accepted media is left out because of its number or
    size.
    """
    shown: list[tuple[llm_pb2.ContentPart, MediaPart, str]] = []
    for message in messages:
        for part in message.content:
            media = get_media(part)
            if media is None:
                continue
            if capabilities and CAPABILITIES[type(media)] not in capabilities:
                part.text = describe_media(media)
            else:
                where = name_reader(message, 0) if message.role == "tool" else READER
                shown.append((part, media, where))
    excess = max(0, len(shown) - PARTS_MAX)
    first, room = -(-excess // PARTS_STEP) * PARTS_STEP, BYTES_MAX
    for part, media, where in shown[:first]:
        part.text = UNSEEN.format(describe_media(media, where))
    for part, media, where in reversed(shown[first:]):
        if wanted := parse_reference(media.url):
            room = _fill_part(part, media, find(wanted), room, where)
    return first > 0 or room == 0


def read_media(messages: Iterable[llm_pb2.Message], find: FindBlob) -> list[llm_pb2.ContentPart]:
    """Return the stored media of `messages`, up to the limits of a request."""
    whole = list(map(copy_message, messages))
    fill_media(whole, find)
    return [part for message in whole for part in message.content if (media := get_media(part)) and media.data]


def _fill_part(part: llm_pb2.ContentPart, media: MediaPart, blob: Blob | None, room: int, where: str) -> int:
    """Put `blob` into `part` and return the remaining room, which is 0 once a blob did not fit."""
    if blob is None:
        part.text = describe_media(media)  # a reference that a caller made up: a provider would refuse it
    elif len(blob.data) > room:
        part.text = UNSEEN.format(describe_media(media, where))
        return 0
    else:
        media.url, media.data, media.mime_type = "", blob.data, blob.mime_type
        return room - len(blob.data)
    return room


def copy_with_media(message: llm_pb2.Message, find: FindBlob) -> llm_pb2.Message:
    if not any((media := get_media(part)) and parse_reference(media.url) for part in message.content):
        return message
    whole = copy_message(message)
    fill_media([whole], find)
    return whole


def copy_message(message: llm_pb2.Message) -> llm_pb2.Message:
    copy = llm_pb2.Message()
    copy.CopyFrom(message)
    return copy


def fill_json_media(text: str, find: FindBlob) -> str:

    def url(found: re.Match[bytes]) -> bytes:
        blob = find(found[1].decode())
        if blob is None:
            return found[0]
        return b'"url":"data:%b;base64,%b"' % (blob.mime_type.encode(), base64.b64encode(blob.data))

    return _REFERENCE.sub(url, text.encode()).decode()
