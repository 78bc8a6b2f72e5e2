"""The parts of a chat's log that requests show: each line whole, in a marked short form, or in a range of lines that a
summary or a notice names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from services.simulator.model_request import drop_reminders
from tests.judges.models.long.script import ASKED_SUMMARY

RANGES = re.compile(
    r"summary stands for lines (\d+) to (\d+) of its log|\[Lines (\d+)-(\d+) of this chat are left out here"
)
BEGINNING = 60
"""Characters that a short form has of a text's beginning."""

IMAGE = "iVBORw0KGgo"
"""How each PNG begins in base64."""

Line = dict[str, Any]


def find_texts(value: Any) -> Iterator[str]:
    """Yield the texts of a request's messages in any protocol's form; a call's arguments as JSON with sorted names."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from find_texts(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            if name in ("arguments", "args", "input") and (arguments := read_arguments(item)) is not None:
                yield json.dumps(arguments, sort_keys=True)
            else:
                yield from find_texts(item)


def read_arguments(given: Any) -> dict[str, Any] | None:
    if isinstance(given, dict):
        return given
    try:
        read = json.loads(given)
    except (TypeError, ValueError):
        return None
    return read if isinstance(read, dict) else None


@dataclass(frozen=True)
class View:
    """The content that a request shows its model."""

    text: str
    ranges: list[tuple[int, int]]
    """Lines that a summary or a notice stands for."""

    @classmethod
    def read(cls, body: dict[str, Any]) -> View:
        conversation = {name: value for name, value in body.items() if name not in ("tools", "toolConfig", "model")}
        text = "\n".join(find_texts(conversation))
        found = [tuple(int(n) for n in match.groups() if n) for match in RANGES.finditer(text)]
        return cls(text, [(first, last) for first, last in found])

    @property
    def asks_for_summary(self) -> bool:
        return ASKED_SUMMARY in self.text

    def find_lost(self, lines: Iterable[Line]) -> list[tuple[int, str]]:
        """Return the lines, with their texts, that are neither shown nor mentioned."""
        return [
            (line["_n"], text)
            for line in lines
            if not any(first <= line["_n"] <= last for first, last in self.ranges)
            for text, reader in list_said(line)
            if not self._has(text, reader)
        ]

    def _has(self, text: str, reader: str) -> bool:
        if text in self.text:
            return True
        if text == IMAGE:
            return reader in self.text or IMAGE in self.text
        return reader in self.text and text[:BEGINNING].split("\n")[0] in self.text


def list_said(line: Line) -> Iterator[tuple[str, str]]:
    """Yield a line's texts, each with the call that reads it whole; reasoning belongs to its own run."""
    by_line = f"read_history {line['_n']}"
    if line["_type"] == "query" and not line["query"]["message"].startswith("/compact"):
        yield line["query"]["message"].strip(), by_line
    if line["_type"] != "step" or line.get("_stage") == "compact":
        return
    for message in line["messages"]:
        for part in message.get("content") or ():
            reader = f'read_result "{message["tool_call_id"]}"' if message["role"] == "tool" else by_line
            yield (drop_reminders(part["text"]).strip() if part["type"] == "text" else IMAGE), reader
        for call in message.get("tool_calls") or ():
            yield json.dumps(json.loads(call["function"]["arguments"]), sort_keys=True), by_line
