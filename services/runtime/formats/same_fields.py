"""Copying between messages whose fields have the same names."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

from google.protobuf.message import Message

M = TypeVar("M", bound=Message)


def copy_fields(record: object, message: type[M], **others: Any) -> M:
    """Return a message with the values of `record`, a struct or a dataclass with slots, for scalar fields of the same
    name, and with `others`, which take precedence.

    An empty value leaves a field with presence unset.
    """
    values = {
        name: value
        for name, may_be_absent in _list_common_fields(type(record), message)
        if (value := getattr(record, name)) or not may_be_absent
    }
    return message(**values | others)


@cache
def _list_common_fields(record: type, message: type[Message]) -> tuple[tuple[str, bool], ...]:
    fields = (field for field in message.DESCRIPTOR.fields if field.message_type is None)
    return tuple((field.name, field.has_presence) for field in fields if hasattr(record, field.name))
