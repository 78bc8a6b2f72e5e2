"""Images, sounds and files of messages, for all protocols."""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

from headrace.errors import InvalidRequest
from headrace.v1 import llm_pb2
from services.llm_gateway.fitting.turns import is_media
from services.llm_gateway.providers.provider_file import Model

CAPABILITIES = {"image": "vision", "audio": "audio", "file": "files"}
"""Ability that a model needs for each kind of part."""

PARTS_MAX = 100
"""Maximum images, sounds and files of a request, the same as Anthropic's (2026-11)."""

BYTES_MAX = 32 * 1024 * 1024

FILE_NAME = "document.pdf"
"""Name of a file without one, which OpenAI requires (https://github.com/laravel/ai/pull/324, 2026-03)."""

AUDIO_FORMATS = {
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/vnd.wave": "wav",
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
}

_DATA_URL = re.compile(r"data:(?P<type>[\w.+/-]+)(?:;[^;,]*)*;base64,(?P<data>.*)", re.DOTALL)


class Encoded(NamedTuple):
    mime_type: str
    base64: str


def encode_media(part: llm_pb2.ImagePart | llm_pb2.AudioPart | llm_pb2.FilePart) -> Encoded | None:
    """Return the content; None for an address that the provider fetches."""
    if not part.url:
        return Encoded(part.mime_type, base64.b64encode(part.data).decode())
    match = _DATA_URL.fullmatch(part.url)
    return Encoded(match["type"], match["data"]) if match else None


def get_file_name(part: llm_pb2.FilePart) -> str:
    return part.name or FILE_NAME


def make_url(part: llm_pb2.ImagePart | llm_pb2.FilePart) -> str:
    """Return the address, or the content as a data: URL."""
    return part.url or f"data:{part.mime_type};base64,{base64.b64encode(part.data).decode()}"


def check_media(request: llm_pb2.ChatRequest, model: Model, kinds: Collection[str]) -> None:
    """Check the media for a model, with a protocol that has these `kinds`.

    Raises:
        InvalidRequest: Names the part that the model does not support, or that is one too many.
    """
    size_bytes = 0
    for number, (place, part) in enumerate(_find_media(request), start=1):
        kind = part.WhichOneof("part") or ""
        needed = CAPABILITIES[kind]
        if model.capabilities and needed not in model.capabilities:
            raise InvalidRequest.of(place, f"model {model.name!r} takes no {kind}: its capabilities lack {needed!r}")
        if kind not in kinds:
            raise InvalidRequest.of(place, f"must be no {kind}: the protocol of model {model.name!r} has none")
        size_bytes += part.ByteSize()
        if number > PARTS_MAX or size_bytes > BYTES_MAX:
            rule = f"a request may have {PARTS_MAX} images, sounds and files, and {BYTES_MAX >> 20} MiB of them"
            raise InvalidRequest.of(place, rule)
        if kind == "audio" and get_audio_format(part.audio) is None:
            raise InvalidRequest.of(place, "must be audio/wav or audio/mpeg, in data or a data: URL")
        if kind == "file" and encode_media(part.file) is None:
            raise InvalidRequest.of(place, "must have data or a data: URL")


def get_audio_format(part: llm_pb2.AudioPart) -> str | None:
    """Return wav or mp3; None for another type."""
    mime_type = part.mime_type
    if part.url:
        match = _DATA_URL.fullmatch(part.url)
        mime_type = match["type"] if match else ""
    return AUDIO_FORMATS.get(mime_type)


def _find_media(request: llm_pb2.ChatRequest) -> Iterator[tuple[str, llm_pb2.ContentPart]]:
    for at, message in enumerate(request.messages):
        for index, part in enumerate(message.content):
            if is_media(part):
                yield f"messages[{at}].content[{index}]", part
