"""Templates such as {{tool_name.field+3d}} stand for a field of the tool's newest successful result.

Values are moved as JSON text, so that a number of any size stays unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, timedelta

import msgspec

from services.orchestrator.run.answers.call import Call
from services.orchestrator.run.answers.toolbox import Toolbox

TEMPLATE = re.compile(r"\{\{\s*([\w-]+)\.([\w-]+?)(?:([+-]\d{1,6})d)?\s*\}\}")

DATE_CHARS = len("2026-01-31")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T ].+)?")

DEPTH_MAX = 64

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_TEXT = msgspec.json.Decoder(str)

LastResult = Callable[[str], str | None]


class Unresolvable(Exception):
    """Tells the model which template has no value."""


def resolve(call: Call, tools: Toolbox) -> None:
    arguments = call.arguments
    try:
        params = fill_templates(arguments, tools.last_result)
    except Unresolvable as error:
        call.problem = str(error)
    else:
        # Set even where nothing changed: in the log, braces in arguments without params mean that the call did not run.
        call.params = params if "{{" in arguments else ""


def fill_templates(arguments: str, last_result: LastResult) -> str:
    """Replace templates in JSON text.

    Raises:
        Unresolvable: A template has no value.
    """
    if "{{" not in arguments:
        return arguments
    try:
        return _fill_value(arguments.encode(), last_result, 0).decode()
    except msgspec.DecodeError:
        return arguments  # invalid JSON is refused where arguments are checked


def _fill_value(raw: bytes, last_result: LastResult, depth: int) -> bytes:
    raw = raw.strip()
    if b"{{" not in raw or depth > DEPTH_MAX:
        return raw
    if raw[:1] == b"{":
        items = _OBJECT.decode(raw).items()
        fields = (
            msgspec.json.encode(key) + b":" + _fill_value(bytes(value), last_result, depth + 1) for key, value in items
        )
        return b"{" + b",".join(fields) + b"}"
    if raw[:1] == b"[":
        return b"[" + b",".join(_fill_value(bytes(item), last_result, depth + 1) for item in _LIST.decode(raw)) + b"]"
    template = TEMPLATE.fullmatch(_TEXT.decode(raw))
    return raw if template is None else _find_field(template, last_result)


def _find_field(template: re.Match[str], last_result: LastResult) -> bytes:
    tool, field, offset = template.groups()
    result = last_result(tool)
    if result is None:
        raise Unresolvable(f"{template[0]} has no value: {tool} has no successful result in this run")
    try:
        fields = _OBJECT.decode(result)
    except (msgspec.DecodeError, UnicodeEncodeError):
        raise Unresolvable(f"{template[0]} has no value: the last result of {tool} is no JSON object") from None
    if field not in fields:
        known = ", ".join(sorted(fields)[:20]) or "none"
        raise Unresolvable(f"{template[0]} has no value: the last result of {tool} has the fields {known}")
    value = bytes(fields[field])
    return value if offset is None else _move_date(template, value, int(offset))


def _move_date(template: re.Match[str], value: bytes, days: int) -> bytes:
    try:
        text = _TEXT.decode(value)
        if not _DATE.fullmatch(text):
            raise ValueError
        datetime.fromisoformat(text)
        moved = date.fromisoformat(text[:DATE_CHARS]) + timedelta(days=days)
    except (ValueError, OverflowError):
        raise Unresolvable(f"{template[0]} has no value: {template[2]} is no date that can be moved so") from None
    return msgspec.json.encode(moved.isoformat() + text[DATE_CHARS:])
