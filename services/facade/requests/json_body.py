"""Decodes JSON bodies strictly: an unknown field raises an error that names the field and the rule.

orjson checks UTF-8, syntax and depth, and reports line and column. A second pass slices the raw text level by
level, so that JSON-valued fields keep their own text and large integers.
"""

from __future__ import annotations

import base64
import binascii
import difflib
from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

import msgspec
import orjson
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from headrace.errors import InvalidRequest
from services.runtime.formats.json_form import JSON_DEPTH_MAX, measure_json_depth, rules_of

BODY = "body"

NAME_CHARS_MAX = 64
"""Maximum length of an unknown field's name in an error."""

Converter: TypeAlias = Callable[[Any, str], Any]
"""Converts a parsed JSON value for a field; InvalidRequest uses the given name."""

_F = FieldDescriptor
INT_RANGES = {
    _F.TYPE_INT32: (-(2**31), 2**31 - 1),
    _F.TYPE_INT64: (-(2**63), 2**63 - 1),
    _F.TYPE_UINT32: (0, 2**32 - 1),
    _F.TYPE_UINT64: (0, 2**64 - 1),
}

_raw_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_raw_list = msgspec.json.Decoder(list[msgspec.Raw]).decode


def decode_body(body: bytes, descriptor: Descriptor) -> Message:
    """Decode `body` as a message.

    Raises:
        InvalidRequest: Names the JSON field and the rule.
    """
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        rule = f"must be valid JSON in UTF-8: {error.msg} at line {error.lineno}, column {error.colno}"
        raise InvalidRequest.of(BODY, rule) from None
    if measure_json_depth(value) > JSON_DEPTH_MAX:
        raise InvalidRequest.of(BODY, f"must not be nested deeper than {JSON_DEPTH_MAX} levels")
    return _decode_message(body, descriptor, "")


@cache
def map_fields(descriptor: Descriptor) -> dict[str, FieldDescriptor]:
    """Return the fields by name and alias."""
    names = {field.json_name: field for field in descriptor.fields}
    aliases = {rules_of(field).alias: field for field in descriptor.fields if rules_of(field).alias}
    return names | aliases


def make_unknown_field(name: str, path: str, descriptor: Descriptor) -> InvalidRequest:
    """Return the error for an unknown field, with the closest known name."""
    close = difflib.get_close_matches(name[:NAME_CHARS_MAX], map_fields(descriptor), n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return InvalidRequest.of(path + name[:NAME_CHARS_MAX], f"is not a field of this request{hint}")


def _decode_message(raw: bytes | msgspec.Raw, descriptor: Descriptor, path: str) -> Message:
    try:
        values = _raw_object(raw)
    except msgspec.ValidationError:
        raise InvalidRequest.of(path.removesuffix(".") or BODY, "must be a JSON object") from None
    message = GetMessageClass(descriptor)()
    known, given = map_fields(descriptor), dict[str, str]()
    for name, value in values.items():
        field = known.get(name)
        if field is None:
            raise make_unknown_field(name, path, descriptor)
        text = bytes(value)
        if text == b"null":
            continue
        if field.name in given:
            raise InvalidRequest.of(path + name, f"is the same field as {given[field.name]!r}; give one of them")
        given[field.name] = name
        _set_field(message, field, text, path + name)
    return message


def _set_field(message: Message, field: FieldDescriptor, text: bytes, name: str) -> None:
    if field.is_repeated:
        getattr(message, field.name).extend(_decode_items(field, text, name))
    elif field.message_type is not None:
        getattr(message, field.name).CopyFrom(_decode_message(text, field.message_type, f"{name}."))
    elif rules_of(field).json:
        setattr(message, field.name, text.decode())
    else:
        setattr(message, field.name, find_converter(field)(orjson.loads(text), name))


def _decode_items(field: FieldDescriptor, text: bytes, name: str) -> list[Any]:
    try:
        items = _raw_list(text)
    except msgspec.ValidationError:
        raise InvalidRequest.of(name, "must be a list") from None
    if (kind := field.message_type) is not None:
        return [_decode_message(item, kind, f"{name}[{index}].") for index, item in enumerate(items)]
    convert = find_converter(field)
    return [convert(orjson.loads(bytes(item)), f"{name}[{index}]") for index, item in enumerate(items)]


@cache
def find_converter(field: FieldDescriptor) -> Converter:
    if field.type in INT_RANGES:
        return _make_int_converter(*INT_RANGES[field.type])
    if field.type == _F.TYPE_BYTES:
        return _convert_bytes
    kinds, rule = {
        _F.TYPE_STRING: ((str,), "must be a string"),
        _F.TYPE_BOOL: ((bool,), "must be true or false"),
        _F.TYPE_DOUBLE: ((int, float), "must be a number"),
    }[field.type]

    def convert(value: Any, name: str) -> Any:
        # type() instead of isinstance: True is an int, but a flag is not a number.
        if type(value) not in kinds:
            raise InvalidRequest.of(name, rule)
        return value

    return convert


def _make_int_converter(low: int, high: int) -> Converter:
    def convert(value: Any, name: str) -> int:
        if type(value) is not int or not low <= value <= high:
            raise InvalidRequest.of(name, f"must be a whole number from {low} to {high}")
        return value

    return convert


def _convert_bytes(value: Any, name: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise InvalidRequest.of(name, "must be base64 text") from None
