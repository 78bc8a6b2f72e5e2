"""Images of messages: stored as blobs, referred to in the log, restored for readers."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable

from headrace.errors import InvalidRequest
from headrace.v1 import llm_pb2
from services.memory.log.blobs import SCHEME, Blob, parse_reference

FindBlob = Callable[[str], Blob | None]
"""Finds a blob by id, if the chat has it; may block."""

_REFERENCE = re.compile(rb'"url":"%b([0-9a-f]{64})"' % SCHEME.encode())
_DATA_URL = re.compile(r"data:([^;,]*)((?:;[^;,]*)*),")


def extract_blob(image: llm_pb2.ImagePart, path: str) -> Blob | None:
    """Return an image's own content; None if its URL points elsewhere. `path` names it in an error.

    Raises:
        InvalidRequest: The content cannot be read.
    """
    if image.data:
        return Blob.create(image.mime_type, image.data)
    head = _DATA_URL.match(image.url)
    if head is None or not head[2].endswith(";base64"):
        return None
    try:
        return Blob.create(head[1], base64.b64decode(image.url[head.end() :], validate=True))
    except binascii.Error:
        raise InvalidRequest.of(path, "must be valid base64") from None


def fill_images(messages: Iterable[llm_pb2.Message], find: FindBlob) -> None:
    for message in messages:
        for part in message.content:
            if part.WhichOneof("part") == "image" and (wanted := parse_reference(part.image.url)):
                blob = find(wanted)
                if blob is None:
                    part.text = "[image]"  # a reference that a caller made up: a provider would refuse it
                else:
                    image = llm_pb2.ImagePart(data=blob.data, mime_type=blob.mime_type, detail=part.image.detail)
                    part.image.CopyFrom(image)


def copy_with_images(message: llm_pb2.Message, find: FindBlob) -> llm_pb2.Message:
    if not any(part.HasField("image") and parse_reference(part.image.url) for part in message.content):
        return message
    whole = llm_pb2.Message()
    whole.CopyFrom(message)
    fill_images([whole], find)
    return whole


def fill_json_images(text: str, find: FindBlob) -> str:

    def url(found: re.Match[bytes]) -> bytes:
        blob = find(found[1].decode())
        if blob is None:
            return found[0]
        return b'"url":"data:%b;base64,%b"' % (blob.mime_type.encode(), base64.b64encode(blob.data))

    return _REFERENCE.sub(url, text.encode()).decode()
