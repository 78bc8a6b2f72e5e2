"""The field rules of the protos (common.proto, FieldRules), checked before a handler runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

import orjson
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from headrace.errors import InvalidRequest
from services.runtime.formats.json_form import JSON_DEPTH_MAX, measure_json_depth, rules_of

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

Check = Callable[[Any, str], None]
"""Raises InvalidRequest for a field's value that breaks a rule, with the field's path."""


class _MessageChecks(NamedTuple):
    """The rules of a message type, checked on the set fields of a message; an unset field breaks only `required`."""

    required: tuple[tuple[FieldDescriptor, Callable[[Message], bool]], ...]
    """Required fields, each with a function that returns whether a message has it."""

    given: Mapping[FieldDescriptor, tuple[str, tuple[Check, ...]]]
    """JSON name and checks of the fields that have any; asking a field for its name takes longer than most checks."""


def check_rules(message: Message) -> None:
    """Raise InvalidRequest if `message` breaks a rule of its proto."""
    _check_message(message, "")


def _check_message(message: Message, path: str) -> None:
    """Check a message at `path`, which is empty or ends with a dot."""
    checks = _compile_checks(message.DESCRIPTOR)
    for field, is_there in checks.required:
        if not is_there(message):
            raise InvalidRequest.of(path + field.json_name, "is required")
    given = checks.given
    for field, value in message.ListFields():
        if (found := given.get(field)) is not None:
            json_name, own = found
            for check in own:
                check(value, path + json_name)


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
    required = [(field, _compile_presence(field)) for field in descriptor.fields if rules_of(field).required]
    given = {field: (field.json_name, _compile_field(field)) for field in descriptor.fields}
    return _MessageChecks(tuple(required), {field: found for field, found in given.items() if found[1]})


def _compile_presence(field: FieldDescriptor) -> Callable[[Message], bool]:
    name = field.name
    if field.message_type is not None and not field.is_repeated:
        return lambda message: message.HasField(name)
    return lambda message: bool(getattr(message, name))


def _compile_field(field: FieldDescriptor) -> tuple[Check, ...]:
    rules = rules_of(field)
    checks: list[Check] = []

    def rule(breaks: Callable[[Any], bool], text: str) -> None:
        def run(value: Any, path: str) -> None:
            if breaks(value):
                raise InvalidRequest.of(path, text)

        checks.append(run)

    if rules.uuid and field.is_repeated:
        checks.append(_check_ids)
    elif rules.uuid:
        rule(lambda value: bool(value) and not is_uuid(value), "must be a UUID in lower case")
    if rules.words:
        words, text = frozenset(rules.words), f"must be one of {', '.join(rules.words)}"
        if field.is_repeated:
            rule(lambda values: not words.issuperset(values), text)
        else:
            rule(lambda value: bool(value) and value not in words, text)
    if rules.bytes_max:
        limit = rules.bytes_max
        rule(
            lambda value: len(value) * 4 > limit and len(value.encode()) > limit,
            f"must not be longer than {limit} bytes",
        )
    if rules.items_max:
        rule(lambda value: len(value) > rules.items_max, f"must not have more than {rules.items_max} items")
    if rules.json:
        checks.append(_check_json_field)
    if (inner := _find_ours(field)) is not None and _has_rules(inner):
        checks.append(_check_each if field.is_repeated else _check_one)
    return tuple(checks)


def _check_json_field(text: str, path: str) -> None:
    if text:
        check_json(text, path)


def _check_ids(values: Iterable[str], path: str) -> None:
    for index, value in enumerate(values):
        if not is_uuid(value):
            raise InvalidRequest.of(f"{path}[{index}]", "must be a UUID in lower case")


def _check_one(message: Message, path: str) -> None:
    _check_message(message, f"{path}.")


def _check_each(messages: Iterable[Message], path: str) -> None:
    for index, message in enumerate(messages):
        _check_message(message, f"{path}[{index}].")


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
