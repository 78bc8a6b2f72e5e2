"""The JSON of remote agents, also where it deviates from the protocol in what the client does not read."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from datetime import UTC, datetime
from typing import Any

import orjson
from google.protobuf.timestamp_pb2 import Timestamp

CARD_FIELDS = ("supportedInterfaces", "supported_interfaces", "capabilities")

_ESCAPE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<half>\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.",
    re.DOTALL,
)
"""An escape of a JSON string: a surrogate pair, half a pair, any other."""


def load_answer(data: bytes) -> Any:
    """Parse JSON, which may begin with a byte order mark, with a replacement character for half a surrogate pair.

    Raises:
        orjson.JSONDecodeError: It is not JSON.
    """
    data = data.removeprefix(BOM_UTF8)
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        # A program that cuts a text between the halves of a surrogate pair writes each half as an escape.
        return orjson.loads(_ESCAPE.sub(lambda found: rb"\ufffd" if found["half"] else found[0], data))


def keep_card_fields(card: dict[str, Any]) -> dict[str, Any]:
    """Return a card with its interfaces and capabilities alone."""
    # PHP writes an empty object as [].
    return {name: card[name] for name in CARD_FIELDS if name in card and card[name] != []}


def drop_unread(value: Any) -> None:
    """Remove metadata and times that cannot be read from a result, and complete times that lack a zone, as UTC."""
    if isinstance(value, list):
        for one in value:
            drop_unread(one)
    elif isinstance(value, dict):
        value.pop("metadata", None)
        if "timestamp" in value:
            value["timestamp"] = _read_time(value["timestamp"])
        for name, one in value.items():
            if name != "data":  # of a part, the agent's own
                drop_unread(one)


def _read_time(value: Any) -> str | None:
    try:
        Timestamp().FromJsonString(value)
    except ValueError:
        pass
    else:
        return value
    try:
        time = datetime.fromisoformat(value)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).isoformat()
    except (TypeError, ValueError):
        return None
