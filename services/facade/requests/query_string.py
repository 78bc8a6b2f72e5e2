"""Decodes query parameters as messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qsl

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from headrace.errors import InvalidRequest
from services.facade.requests.json_body import INT_RANGES, find_converter, make_unknown_field, map_fields

PARAMETERS_MAX = 600
"""More than any request has fields; a list of 512 names fits."""

_WORDS = {"true": True, "false": False}


def parse_parameters(raw_query: str) -> list[tuple[str, str]]:
    """Parse the parameters of a percent-encoded URL, in order."""
    try:
        return parse_qsl(raw_query, keep_blank_values=True, errors="strict", max_num_fields=PARAMETERS_MAX)
    except UnicodeDecodeError:
        raise InvalidRequest.of("query", "parameters must be UTF-8") from None
    except ValueError:
        raise InvalidRequest.of("query", f"must not have more than {PARAMETERS_MAX} parameters") from None


def decode_parameters(parameters: Iterable[tuple[str, str]], descriptor: Descriptor) -> Message:
    """Decode `parameters` as a message; a repeated parameter is a list.

    Raises:
        InvalidRequest: Names the parameter and the rule.
    """
    message = GetMessageClass(descriptor)()
    known, given = map_fields(descriptor), set[str]()
    for name, text in parameters:
        field = known.get(name)
        if field is None or field.message_type is not None:
            raise make_unknown_field(name, "", descriptor)
        if field.is_repeated:
            getattr(message, field.name).append(_convert_value(field, text, name))
            continue
        if field.name in given:
            raise InvalidRequest.of(name, "must be given once")
        given.add(field.name)
        setattr(message, field.name, _convert_value(field, text, name))
    return message


def _convert_value(field: FieldDescriptor, text: str, name: str) -> Any:
    return find_converter(field)(_parse_value(field, text), name)


def _parse_value(field: FieldDescriptor, text: str) -> Any:
    """Return the parsed value of a boolean or number field; text that does not parse is returned unchanged."""
    if field.type == FieldDescriptor.TYPE_BOOL:
        return _WORDS.get(text, text)
    # isascii: int() accepts digits of other scripts. The length limit: int() is slow for long texts.
    if field.type in INT_RANGES and len(text) <= 20 and text.isascii() and text.removeprefix("-").isdigit():
        return int(text)
    if field.type == FieldDescriptor.TYPE_DOUBLE:
        try:
            return float(text)
        except ValueError:
            return text
    return text
