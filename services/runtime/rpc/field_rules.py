"""The field rules of the protos (common.proto, FieldRules), checked before a handler runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import orjson
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from headrace.errors import InvalidRequest
from headrace.v1 import common_pb2
from services.runtime.json_depth import JSON_DEPTH_MAX, measure_json_depth
from services.runtime.json_form import rules_of

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

Check = Callable[[Message, str], None]
"""Raises InvalidRequest for a message, at a path with a final dot, that breaks a rule."""


def check_rules(message: Message) -> None:
    """Raise InvalidRequest when `message` breaks a rule of its proto."""
    for rule in _compile_checks(message.DESCRIPTOR):
        rule(message, "")


def is_uuid(text: str) -> bool:
    return _UUID.fullmatch(text) is not None


def check_json(text: str, name: str) -> None:
    """Raise InvalidRequest unless `text` is JSON of at most JSON_DEPTH_MAX."""
    try:
        value = orjson.loads(text)
    except ValueError as error:
        raise InvalidRequest.of(name, f"must be valid JSON: {error}") from None
    if measure_json_depth(value) > JSON_DEPTH_MAX:
        raise InvalidRequest.of(name, f"must not be nested deeper than {JSON_DEPTH_MAX} levels")


@cache
def _compile_checks(descriptor: Descriptor) -> tuple[Check, ...]:
    checks: list[Check] = []
    for field in descriptor.fields:
        checks += _compile_field(field, rules_of(field))
        if field.message_type is not None and descriptor.file.package == field.message_type.file.package:
            checks.append(_compile_nested(field))
    return tuple(checks)


def _compile_field(field: FieldDescriptor, rules: common_pb2.FieldRules) -> list[Check]:
    name, json_name = field.name, field.json_name
    checks: list[Check] = []

    def rule(breaks: Callable[[Any], bool], text: str) -> None:
        def run(message: Message, path: str) -> None:
            if breaks(getattr(message, name)):
                raise InvalidRequest.of(path + json_name, text)

        checks.append(run)

    if rules.required:
        checks.append(_compile_required(field))
    if rules.uuid:
        rule(lambda value: bool(value) and not is_uuid(value), "must be a UUID in lower case")
    if rules.words:
        words = frozenset(rules.words)
        rule(lambda value: bool(value) and value not in words, f"must be one of {', '.join(rules.words)}")
    if rules.bytes_max:
        limit = rules.bytes_max
        rule(
            lambda value: len(value) * 4 > limit and len(value.encode()) > limit,
            f"must not be longer than {limit} bytes",
        )
    if rules.items_max:
        rule(lambda value: len(value) > rules.items_max, f"must not have more than {rules.items_max} items")
    if rules.json:

        def run_json(message: Message, path: str) -> None:
            if text := getattr(message, name):
                check_json(text, path + json_name)

        checks.append(run_json)
    return checks


def _compile_required(field: FieldDescriptor) -> Check:
    name, json_name = field.name, field.json_name
    has_presence = field.message_type is not None and not field.is_repeated

    def run(message: Message, path: str) -> None:
        if not (message.HasField(name) if has_presence else getattr(message, name)):
            raise InvalidRequest.of(path + json_name, "is required")

    return run


def _compile_nested(field: FieldDescriptor) -> Check:
    name, json_name, kind = field.name, field.json_name, field.message_type

    def run_one(message: Message, path: str) -> None:
        if message.HasField(name):
            inner = getattr(message, name)
            for check_inner in _compile_checks(kind):
                check_inner(inner, f"{path}{json_name}.")

    def run_each(message: Message, path: str) -> None:
        if inner_checks := _compile_checks(kind):
            for index, inner in enumerate(getattr(message, name)):
                for check_inner in inner_checks:
                    check_inner(inner, f"{path}{json_name}[{index}].")

    return run_each if field.is_repeated else run_one
