"""The field rules of the protos (common.proto, FieldRules), checked before a handler runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

import orjson
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from headrace.errors import InvalidRequest
from services.runtime.formats.json_form import JSON_DEPTH_MAX, measure_json_depth, rules_of

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class _FieldChecks(NamedTuple):
    json_name: str
    """Asking the descriptor for it takes longer than most checks."""
    is_repeated: bool
    is_uuid: bool
    words: Sequence[str]
    bytes_max: int
    items_max: int
    is_json: bool
    has_rules_inside: bool


class _MessageChecks(NamedTuple):
    """The rules of a message type, checked on the set fields of a message; an unset field breaks only `required`."""

    required: tuple[tuple[str, str, bool], ...]
    """Required fields: name, JSON name, and whether the field is one message."""

    given: Mapping[FieldDescriptor, _FieldChecks]
    """Fields with any checks."""


def check_rules(message: Message, path: str = "") -> None:
    """Raise InvalidRequest if `message` breaks a rule of its proto; `path` is empty or ends with a dot.

    One function checks all fields of a message, because every RPC passes it.
    """
    checks = _compile_checks(message.DESCRIPTOR)
    for name, json_name, is_message in checks.required:
        if not (message.HasField(name) if is_message else getattr(message, name)):
            raise InvalidRequest.of(path + json_name, "is required")
    given = checks.given
    for field, value in message.ListFields():
        if (found := given.get(field)) is None:
            continue
        json_name, is_repeated, has_uuid, words, bytes_max, items_max, is_json, has_rules_inside = found
        if has_uuid:
            for index, text in enumerate(value if is_repeated else (value,)):
                if not _UUID.fullmatch(text) and (text or is_repeated):
                    place = f"{json_name}[{index}]" if is_repeated else json_name
                    raise InvalidRequest.of(path + place, "must be a UUID in lower case")
        if words and value and (value not in words if not is_repeated else not frozenset(words).issuperset(value)):
            raise InvalidRequest.of(path + json_name, f"must be one of {', '.join(words)}")
        if bytes_max and len(value) * 4 > bytes_max and len(value.encode()) > bytes_max:
            raise InvalidRequest.of(path + json_name, f"must not be longer than {bytes_max} bytes")
        if items_max and len(value) > items_max:
            raise InvalidRequest.of(path + json_name, f"must not have more than {items_max} items")
        if is_json and value:
            check_json(value, path + json_name)
        if has_rules_inside and is_repeated:
            for index, inner in enumerate(value):
                check_rules(inner, f"{path}{json_name}[{index}].")
        elif has_rules_inside:
            check_rules(value, f"{path}{json_name}.")


def is_uuid(text: str) -> bool:
    return _UUID.fullmatch(text) is not None


def check_json(text: str, name: str) -> None:
    """Raise InvalidRequest unless `text` is JSON nested at most JSON_DEPTH_MAX deep."""
    try:
        value = orjson.loads(text)
    except ValueError as error:
        raise InvalidRequest.of(name, f"must be valid JSON: {error}") from None
    if measure_json_depth(value) > JSON_DEPTH_MAX:
        raise InvalidRequest.of(name, f"must not be nested deeper than {JSON_DEPTH_MAX} levels")


@cache
def _compile_checks(descriptor: Descriptor) -> _MessageChecks:
    required = tuple(
        (field.name, field.json_name, field.message_type is not None and not field.is_repeated)
        for field in descriptor.fields
        if rules_of(field).required
    )
    given: dict[FieldDescriptor, _FieldChecks] = {}
    for field in descriptor.fields:
        rules, inner = rules_of(field), _find_ours(field)
        checks = _FieldChecks(
            field.json_name,
            bool(field.is_repeated),
            rules.uuid,
            tuple(rules.words),
            rules.bytes_max,
            rules.items_max,
            rules.json,
            inner is not None and _has_rules(inner),
        )
        if any(checks[2:]):
            given[field] = checks
    return _MessageChecks(required, given)


@cache
def _has_rules(descriptor: Descriptor) -> bool:
    """Return whether a message of this type, or one in it, can break a rule."""
    seen, unseen = {descriptor.full_name}, [descriptor]
    for kind in unseen:  # grows in the meantime, because a type may contain itself
        if any(rules_of(field).ListFields() for field in kind.fields):
            return True
        inner = [found for field in kind.fields if (found := _find_ours(field)) is not None]
        unseen += [found for found in inner if found.full_name not in seen]
        seen |= {found.full_name for found in inner}
    return False


def _find_ours(field: FieldDescriptor) -> Descriptor | None:
    """Return the field's message type; None if it is not a message of our protos."""
    kind, holder = field.message_type, field.containing_type
    return kind if kind is not None and holder is not None and kind.file.package == holder.file.package else None
