"""A message's content: its text and attachments.

The text keeps each attachment's name in brackets at its place, so that it can refer to several attachments.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from headrace.errors import InvalidRequest
from services.facade.adapters.attachments.attachment import (
    NO_PICTURE,
    Attachment,
    decode_base64,
    decode_url,
    make_name,
)
from services.facade.adapters.attachments.file_ids import parse_file_id
from services.facade.openai_api.body import TEXT_PARTS, THOUGHT_PARTS, Part
from services.runtime.tokens.image_size import image_size


@dataclass(frozen=True, slots=True)
class Content:
    text: str
    attachments: Sequence[Attachment] = ()


def read_content(content: str | list[Part] | None, name: str) -> Content:
    """Read a message's content; InvalidRequest names a part that is not acceptable."""
    if content is None or isinstance(content, str):
        return Content(content or "")
    text, attachments = "", list[Attachment]()
    is_behind_text = True
    for at, part in enumerate(content):
        if part.type in THOUGHT_PARTS:
            continue
        if part.type in TEXT_PARTS:
            text += ("" if is_behind_text else "\n") + (part.text or part.refusal or "")
            is_behind_text = True
            continue
        attachments.append(_read_attachment(part, f"{name}[{at}]"))
        text += ("\n" if text else "") + f"[{attachments[-1].name}]"
        is_behind_text = False
    return Content(text, attachments)


def _read_attachment(part: Part, field: str) -> Attachment:
    match part.type:
        case "image_url" | "input_image":
            return _read_image(part, field)
        case "input_audio":
            return _read_sound(part, field)
        case "file" | "input_file":
            return _read_file(part, field)
        case _:
            kinds = "text, an image, input_audio or a file"
            raise InvalidRequest.of(f"{field}.type", f"must be {kinds}, not {part.type[:32]!r}")


def _read_image(part: Part, field: str) -> Attachment:
    # In a chat completion, the URL is in a nested object.
    given = part.image_url
    if part.file_id and not given:
        return replace(_find_stored(part.file_id, field), detail=_read_detail(part.detail), is_picture=True)
    url, detail = (given or "", part.detail) if given is None or isinstance(given, str) else (given.url, given.detail)
    kind, data = decode_url(url, f"{field}.image_url")
    if image_size(data) is None:
        raise InvalidRequest.of(f"{field}.image_url", NO_PICTURE)
    return Attachment(field, make_name("image", kind, data), data, _read_detail(detail), is_picture=True)


def _read_detail(detail: str | None) -> str:
    return detail if detail in ("low", "high") else ""


def _read_sound(part: Part, field: str) -> Attachment:
    sound = part.input_audio
    if sound is None or sound.format not in ("wav", "mp3"):
        raise InvalidRequest.of(f"{field}.input_audio", "must have data in base64 and the format wav or mp3")
    data = decode_base64(sound.data, f"{field}.input_audio.data")
    return Attachment(field, f"audio-{hashlib.sha256(data).hexdigest()[:8]}.{sound.format}", data)


def _read_file(part: Part, field: str) -> Attachment:
    # In a response, the file's fields are in the part itself.
    given = part.file or part
    if given.file_id:
        return _find_stored(given.file_id, field)
    if given.file_url or not given.file_data:
        raise InvalidRequest.of(
            field, "must have a file_id, or file_data: base64 or a data: URL; no address is fetched"
        )
    kind, data = "", b""
    if given.file_data.startswith("data:"):
        kind, data = decode_url(given.file_data, f"{field}.file_data")
    else:
        data = decode_base64(given.file_data, f"{field}.file_data")
    return Attachment(field, given.filename or make_name("file", kind, data), data)


def _find_stored(file_id: str, field: str) -> Attachment:
    stored = parse_file_id(file_id)
    if stored is None:
        raise InvalidRequest.of(f"{field}.file_id", "must be the id of a file created by POST /v1/files")
    return Attachment(field, stored.name, b"", stored=stored)
