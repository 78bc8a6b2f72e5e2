"""The tools of a scope, and templates such as {{tool_name.field+3d}} for fields of their newest results."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, timedelta

import msgspec

from headrace.v1 import llm_pb2, tools_pb2
from services.orchestrator.run.answers.call import Call, fit_arguments

PREFIXES = ("functions.", "functions:", "default_api.", "default_api:")
"""Namespaces that models know from their training, which servers leave in the names of calls."""


class Toolbox:
    def __init__(self, tools: Iterable[tools_pb2.Tool] = (), results: Mapping[str, str] | None = None) -> None:
        self._tools = {tool.name.casefold(): tool for tool in tools}
        self.results = dict(results or {})
        """Latest successful results by case-folded name."""

    def __bool__(self) -> bool:
        return bool(self._tools)

    @property
    def tools(self) -> list[tools_pb2.Tool]:
        return [*self._tools.values()]

    @property
    def names(self) -> list[str]:
        return sorted(tool.name for tool in self._tools.values())

    @property
    def schemas(self) -> list[llm_pb2.ToolSchema]:
        return [
            llm_pb2.ToolSchema(name=tool.name, description=tool.description, parameters=tool.parameters)
            for tool in self._tools.values()
        ]

    def find(self, name: str) -> tools_pb2.Tool | None:
        """Return the tool of this name, which may have other parts of a model's own format around it."""
        folded = name.casefold()
        if (tool := self._tools.get(folded)) is not None:
            return tool
        bare = folded.partition("<|")[0].strip("() \t\n")
        for prefix in PREFIXES:
            bare = bare.removeprefix(prefix)
        start, _, number = bare.rpartition(":")
        return self._tools.get(start if number.isdecimal() else bare)

    def note(self, name: str, result: str) -> None:
        self.results[name.casefold()] = result

    def add_results(self, results: Mapping[str, str]) -> None:
        self.results |= results

    def last_result(self, name: str) -> str | None:
        return self.results.get(name.casefold())


TEMPLATE = re.compile(r"\{\{\s*([\w-]+)\.([\w-]+?)(?:([+-]\d{1,6})d)?\s*\}\}")

_REFERENCE = re.compile(r"\{\{\s*([\w-]+)\.[^{}]*\}\}")
"""Any text in braces that begins like a template."""

FILLED_CHARS_MAX = 1_000_000
"""Maximum characters that templates insert into one call; a few bytes may name a large field many times."""

DATE_CHARS = len("2026-01-31")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T ].+)?")

DEPTH_MAX = 64

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_TEXT = msgspec.json.Decoder(str)

LastResult = Callable[[str], str | None]


class Unresolvable(Exception):
    """Describes the template that has no value, for the model."""


def resolve(call: Call, tools: Toolbox) -> None:
    arguments = call.arguments
    try:
        params = fill_templates(arguments, tools.last_result, lambda name: tools.find(name) is not None)
    except Unresolvable as error:
        call.problem = str(error)
    else:
        # Set even where nothing changed: in the log, braces in arguments without params mean that the call did not run.
        call.params = params if "{{" in arguments else ""
        if (fitted := fit_arguments(call)) != call.effective:
            call.params = fitted


def fill_templates(arguments: str, last_result: LastResult, is_tool: Callable[[str], bool] = lambda name: False) -> str:
    """Replace templates in JSON text: a string that is a template becomes the field's value, one inside a longer string
    its text.

    Inside a longer string only names with a result, or names that `is_tool` accepts, refer to tools; other text in
    braces, such as a page's own templates, is left alone.

    Raises:
        Unresolvable: A template has no value, or is malformed.
    """
    if "{{" not in arguments:
        return arguments
    try:
        return _Filler(last_result, is_tool).fill_value(arguments.encode()).decode()
    except msgspec.DecodeError:
        return arguments  # invalid JSON is refused where arguments are checked


class _Filler:
    """Fills the templates of one call's arguments."""

    def __init__(self, last_result: LastResult, is_tool: Callable[[str], bool]) -> None:
        self._last_result = last_result
        self._is_tool = is_tool
        self._chars_left = FILLED_CHARS_MAX

    def fill_value(self, raw: bytes, depth: int = 0) -> bytes:
        raw = raw.strip()
        if b"{{" not in raw or depth > DEPTH_MAX:
            return raw
        if raw[:1] == b"{":
            items = _OBJECT.decode(raw).items()
            fields = (
                msgspec.json.encode(key) + b":" + self.fill_value(bytes(value), depth + 1) for key, value in items
            )
            return b"{" + b",".join(fields) + b"}"
        if raw[:1] == b"[":
            return b"[" + b",".join(self.fill_value(bytes(item), depth + 1) for item in _LIST.decode(raw)) + b"]"
        text = _TEXT.decode(raw)
        if (template := TEMPLATE.fullmatch(text)) is not None:
            return self._find_field(template)
        filled = _REFERENCE.sub(self._fill_reference, text)
        return raw if filled == text else msgspec.json.encode(filled)

    def _fill_reference(self, reference: re.Match[str]) -> str:
        if not self._is_tool(reference[1]) and self._last_result(reference[1]) is None:
            return reference[0]
        template = TEMPLATE.fullmatch(reference[0])
        if template is None:
            expected = f"{{{{{reference[1]}.field}}}} or, for a date, {{{{{reference[1]}.field+3d}}}}"
            raise Unresolvable(f"{reference[0]} is no template: expected {expected}")
        value = self._find_field(template)
        return _TEXT.decode(value) if value[:1] == b'"' else value.decode()

    def _find_field(self, template: re.Match[str]) -> bytes:
        tool, field, offset = template.groups()
        result = self._last_result(tool)
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
        self._chars_left -= len(value)
        if self._chars_left < 0:
            raise Unresolvable(f"{template[0]}: templates may put in {FILLED_CHARS_MAX} characters of one call at most")
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
