"""Messages of the contract for a terminal: lists as tables, single ones as lines of name and value."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import reduce
from typing import Any, TypeAlias

import click
from google.protobuf.descriptor import FieldDescriptor
from rich.cells import cell_len

from headrace.cli.run_view.printing import format_time
from headrace.shown_text import isolate, make_visible

NANO_PER_USD = 1_000_000_000

NONE = "-"
"""A cell without a value, so that a table's columns can be counted."""

Column: TypeAlias = str | tuple[str, Callable[[Any], str]]
"""`field`, or `field:head` with another head than the field's name; or a head with what makes its cells. A field of a
message in the row is `message.field`."""

_ENDINGS = ("_at", "_id", "_key", "_nano_usd")
"""Endings of names that a head leaves out."""


def print_table(head: Sequence[str], rows: Collection[Sequence[str]], *, right: Collection[str] = ()) -> None:
    """Print rows under their head, each on one line; the columns of `right` end at the right."""
    if not head:
        return
    lines = [[*map(_clean_cell, row)] for row in (head, *rows)]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    for cells in lines:
        padded = (
            _pad_cell(cell, width, at_right=name in right)
            for name, cell, width in zip(head, cells, widths, strict=True)
        )
        _print_line("  ".join(padded).rstrip())


def print_rows(rows: Sequence[Any], columns: Iterable[Column] = ()) -> None:
    """Print messages as a table; without `columns`, of all fields that one of them has."""
    wanted = list(columns) or list(dict.fromkeys(field.name for row in rows for field, _ in row.ListFields()))
    head: list[str] = []
    cells: list[list[str]] = []
    right: set[str] = set()
    for column in wanted:
        if isinstance(column, tuple):
            name, read = column
            cells.append([read(row) or NONE for row in rows])
        else:
            path, _, name = column.partition(":")
            name = name or _name_field(path)
            *parents, leaf = path.split(".")
            messages = [reduce(getattr, parents, row) for row in rows]
            fields = [message.DESCRIPTOR.fields_by_name[leaf] for message in messages]
            cells.append([*map(_format_field, messages, fields)])
            right |= {name for field in fields if _is_number(field)}
        head.append(name)
    print_table(head, [*zip(*cells, strict=True)], right=right)


def print_records(head: Sequence[str], rows: Sequence[Sequence[str | int]], *, is_json: bool) -> None:
    """Print rows that are not messages as a table, or each as a line of JSON with the names in `head`."""
    if is_json:
        for row in rows:
            click.echo(json.dumps(dict(zip(head, row, strict=True)), ensure_ascii=False))
        return
    numbers = [name for name, *column in zip(head, *rows, strict=True) if any(isinstance(cell, int) for cell in column)]
    print_table(head, [[*map(str, row)] for row in rows], right=numbers)


def print_message(message: Any) -> None:
    """Print the fields that are set as `name: value`, then those that are lists of messages as tables."""
    fields = [field for field, _ in message.ListFields()]
    single = [field for field in fields if not (field.is_repeated and field.message_type)]
    width = max((len(_name_field(field.name)) for field in single), default=0)
    for field in single:
        _print_line(f"{_name_field(field.name) + ':':{width + 1}} {_clean_cell(_format_field(message, field))}")
    for field in fields:
        if field not in single:
            click.echo(f"{_name_field(field.name)}:")
            print_rows(getattr(message, field.name))


def _pad_cell(text: str, width: int, *, at_right: bool) -> str:
    space = " " * (width - cell_len(text))  # a terminal shows some letters in two columns
    return space + text if at_right else text + space


def _clean_cell(text: str) -> str:
    return make_visible(" ".join(text.split()))


def _print_line(line: str) -> None:
    click.echo(isolate(line) if sys.stdout.isatty() else line)


def _name_field(path: str) -> str:
    name = path.rpartition(".")[2]
    ending = next((ending for ending in _ENDINGS if name.endswith(ending)), "")
    return name.removesuffix(ending).replace("_", " ")


def _is_number(field: FieldDescriptor) -> bool:
    is_text = field.cpp_type in (field.CPPTYPE_STRING, field.CPPTYPE_BOOL, field.CPPTYPE_MESSAGE)
    return not (is_text or field.is_repeated or field.name.endswith(("_at", "_until")))


def _format_field(message: Any, field: FieldDescriptor) -> str:
    value = getattr(message, field.name)
    if field.has_presence and not message.HasField(field.name):
        return NONE
    if field.is_repeated:
        return ",".join(_describe(item) if field.message_type else str(item) for item in value) or NONE
    if field.message_type:
        return _describe(value)
    if isinstance(value, bool):
        return "yes" if value else NONE
    if field.name.endswith(("_at", "_until")):
        return format_time(value) if value else NONE
    if field.name.endswith("_nano_usd"):
        return f"{value / NANO_PER_USD:.6f}"
    if field.name.endswith("_ratio"):
        return f"{value:.0%}"
    return str(value) or NONE


def _describe(message: Any) -> str:
    """Return a message in a cell, such as `OVERLOADED: try again`."""
    return ": ".join(_format_field(message, field) for field, _ in message.ListFields())
