"""Converts other programs' messages to the pieces of our steps; content it cannot interpret becomes text."""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from headrace.v1 import common_pb2
from services.memory.log.messages import (
    AudioPart,
    AudioUrl,
    Call,
    FilePart,
    FileUrl,
    Function,
    ImagePart,
    ImageUrl,
    Part,
    StoredMessage,
    TextPart,
    Timing,
)
from services.memory.log.raw_json import ABSENT, pick_loadable
from services.runtime.formats.json_form import is_object

SECONDS_MAX = 100_000_000_000
"""Larger numbers are milliseconds; as seconds they would be after the year 5000."""


def to_milliseconds(value: Any) -> int:
    """Convert seconds, milliseconds or ISO text to Unix milliseconds; 0 if it is not a time."""
    if isinstance(value, bool):
        return 0
    if isinstance(value, int | float) and 0 < value < 1e15:
        return int(value if value > SECONDS_MAX else value * 1000)
    if isinstance(value, str):
        if value.isdecimal():
            return to_milliseconds(int(value[:16]))
        try:
            time = datetime.fromisoformat(value)
        except ValueError:
            return 0
        return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
    return 0


Json = dict[str, Any]


def parse_json(text: bytes) -> Any:
    """Parse JSON, with numbers that it does not have, such as Python's NaN, as text.

    Raises ValueError or RecursionError if it is invalid.
    """
    value = json.loads(text, parse_constant=str, parse_float=_read_float)
    if b"\\ud" in text.lower():  # a half of a character, which a writer cut in two, has no form in UTF-8
        whole = json.dumps(value, ensure_ascii=False)
        value = json.loads(whole.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    return value


def _read_float(text: str) -> float | str:
    value = float(text)
    return value if math.isfinite(value) else text


def to_dict(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def to_list(value: Any) -> list[Any]:
    """Return `value` if it is a list, else a list with it; empty for None."""
    if isinstance(value, list):
        return value
    return [] if value is None else [value]


def to_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def to_raw(value: Any) -> msgspec.Raw:
    return ABSENT if value is None else msgspec.Raw(json.dumps(value, ensure_ascii=False).encode())


def read_parts(value: Any) -> list[Part]:
    return [part for item in to_list(value) if (part := _read_part(item))]


def read_message(message: Json, ts: int) -> Iterator[StoredMessage]:
    """Yield the pieces of a message in OpenAI's format; none for a system message."""
    role = message.get("role")
    if role == "tool":
        yield make_result(
            to_text(message.get("tool_call_id")), message.get("content"), get_ts(message, ts), _read_ids(message)
        )
    elif role == "assistant":
        yield from _read_answer(message, ts)
    elif role != "system" and (content := read_parts(message.get("content"))):
        yield StoredMessage(role="user", content=content, ts=get_ts(message, ts))


def make_result(call_id: str, content: Any, ts: int, ids: Json, name: str | None = None) -> StoredMessage:
    is_error = ids.pop("is_error", None)
    return StoredMessage(
        role="tool",
        name=name or ids.pop("name", None),
        tool_call_id=call_id,
        content=read_parts(content) or [TextPart("")],
        ts=ts,
        ok=None if is_error is None else not is_error,
        **{key: value for key, value in ids.items() if key != "name"},
    )


def make_call(call_id: str, name: str, arguments: Any, ts: int, msg_id: str | None, ids: Json) -> StoredMessage:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    is_whole = is_object(text)
    return StoredMessage(
        role="assistant",
        tool_calls=[Call(call_id, Function(name, text if is_whole else "{}"))],
        raw_arguments=None if is_whole else text,
        ts=ts,
        msg_id=msg_id,
        **ids,
    )


def to_count(value: Any) -> int | None:
    """Return `value` if it is an integer from 0 that every JSON reader represents exactly; else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else None


def get_ts(message: Json, otherwise: int) -> int:
    return to_count(message.get("ts")) or otherwise


def make_msg_id() -> str:
    return f"m_{uuid.uuid4().hex[:8]}"


def _read_answer(message: Json, ts: int) -> Iterator[StoredMessage]:
    ts, own = get_ts(message, ts), _read_ids(message)
    msg_id = to_text(message.get("_msgId")) or make_msg_id()
    common: Json = {"role": "assistant", "ts": ts, "msg_id": msg_id}
    thought = "".join(part.text for part in read_parts(message.get("reasoning_content")) if isinstance(part, TextPart))
    if thought:
        reasoning_id = to_text(message.get("_reasoningId")) or None
        yield StoredMessage(
            **common, reasoning_content=[TextPart(thought)], reasoning_id=reasoning_id, **_read_extras(message)
        )
    if content := read_parts(message.get("content")):
        yield StoredMessage(
            **common, content=content, content_id=to_text(message.get("_contentId")) or None, **_read_extras(message)
        )
    for asked in map(to_dict, to_list(message.get("tool_calls"))):
        function = to_dict(asked.get("function"))
        ids = {**_read_ids(asked), **own}  # V3 has them inside the call
        name = to_text(function.get("name") or asked.get("name"))
        ids.pop("name", None)
        ids.pop("is_error", None)
        piece = make_call(to_text(asked.get("id")), name, function.get("arguments"), ts, msg_id, ids)
        yield msgspec.structs.replace(piece, **_read_extras(message))


def _read_ids(holder: Json) -> Json:
    found: Json = {}
    for key, name in (("_toolId", "tool_id"), ("_actionId", "action_id"), ("name", "name")):
        if isinstance(holder.get(key), str):
            found[name] = holder[key]
    if isinstance(holder.get("_ok"), bool):
        found["is_error"] = not holder["_ok"]
    return found


def _read_extras(message: Json) -> Json:
    timing = to_dict(message.get("_timing"))
    start, end = to_count(timing.get("startedAt")), to_count(timing.get("endedAt"))
    usage = pick_loadable(to_dict(message.get("_usage")), common_pb2.Usage)
    return {
        "timing": None if start is None or end is None else Timing(start, end),
        "usage": to_raw(usage or None),
        "provider_state": to_raw(message.get("_providerState")),
    }


def _read_part(item: Any) -> Part | None:
    if isinstance(item, str):
        return TextPart(item) if item else None
    given = to_dict(item)
    file, audio = to_dict(given.get("file")), to_dict(given.get("input_audio"))
    match given.get("type"):
        case "text" if isinstance(given.get("text"), str):
            return TextPart(given["text"]) if given["text"] else None
        case "image_url":
            image = given.get("image_url")
            url = image if isinstance(image, str) else to_dict(image).get("url")
            return ImagePart(ImageUrl(to_text(url), to_text(to_dict(image).get("detail"))))
        case "image" if url := _read_source(given):
            return ImagePart(ImageUrl(url))
        case "document" if to_dict(given.get("source")).get("type") == "text":
            return _read_part(given["source"].get("data"))
        case "document" if url := _read_source(given):
            return FilePart(FileUrl(url, to_text(given.get("title"))))
        case "file" if url := to_text(file.get("url") or file.get("file_data")):
            return FilePart(FileUrl(url, to_text(file.get("filename"))))
        case "input_audio" if audio.get("url") or audio.get("data"):
            data = f"data:audio/{audio.get('format')};base64,{to_text(audio.get('data'))}"
            return AudioPart(AudioUrl(to_text(audio.get("url")) or data))
        case "redacted_thinking":  # only its provider can read it
            return None
        case _:
            return TextPart(to_text(item))


def _read_source(part: Json) -> str:
    """Return the URL of an image or document in Anthropic's format; empty if it has none."""
    source = to_dict(part.get("source"))
    kind, data = to_text(source.get("media_type")), to_text(source.get("data"))
    return to_text(source.get("url")) or (f"data:{kind};base64,{data}" if data else "")
