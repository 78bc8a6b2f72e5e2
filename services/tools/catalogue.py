"""The tools in force: the built-in ones, and what the definition files make of them.

A bad file is named in the log and its last good version stays in force; the other files go on.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import structlog
from jsonschema_rs import Draft202012Validator

from services.tools.arguments import compile_schema
from services.tools.builtin import BUILTIN
from services.tools.definitions import SUFFIX, BadDefinition, Definition, read_definitions
from services.tools.own_command import own_tool
from services.tools.tool import Tool

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Offered:
    """A tool with its arguments' validators, made once."""

    tool: Tool
    schemas: tuple[Draft202012Validator, ...]
    """Its own; for a built-in tool with a stated schema both, because the code relies on the built-in one."""


class Catalogue:
    """Tools by name without regard to case. One for the service; `reload` replaces what is in force in one step."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._good: dict[Path, list[Definition]] = {}
        self._offered: dict[str, Offered] = {}
        self.reload()

    def find(self, name: str) -> Offered | None:
        return self._offered.get(name.casefold())

    def tools(self) -> list[Tool]:
        """All of them, ordered by name."""
        return sorted((offered.tool for offered in self._offered.values()), key=lambda tool: tool.name)

    def reload(self) -> None:
        """Read the folder again; never raises for what a file holds."""
        paths = sorted(self._folder.glob(f"*{SUFFIX}"))
        self._good = {path: good for path in paths if (good := self._read(path)) is not None}
        builtin = {tool.name.casefold(): tool for tool in BUILTIN}
        tools = dict(builtin)
        for path, definition in _unique(self._good):
            key = definition.name.casefold()
            if tool := self._make(path, definition, builtin.get(key)):
                tools[key] = tool
        self._offered = {key: _offer(tool, builtin.get(key)) for key, tool in tools.items()}
        log.info("tools loaded", tools=len(self._offered), files=len(self._good))

    def _read(self, path: Path) -> list[Definition] | None:
        """The file's definitions, or its last good ones; None when it never had any."""
        try:
            return read_definitions(path)
        except BadDefinition as problem:
            kept = self._good.get(path)
            log.error("tool file refused", file=path.name, problem=str(problem), last_good_kept=kept is not None)
            return kept

    def _make(self, path: Path, definition: Definition, builtin: Tool | None) -> Tool | None:
        if builtin is not None and definition.command is None:
            return _described(builtin, definition)
        problem = ""
        if builtin is not None:
            problem = f"command: {builtin.name} is built in; give the tool another name"
        elif definition.command is None:
            problem = "command: missing, and no built-in tool has this name"
        if problem:
            log.error("tool refused", file=path.name, tool=definition.name, problem=problem)
            return None
        return own_tool(definition, self._folder)


def _offer(tool: Tool, builtin: Tool | None) -> Offered:
    texts = dict.fromkeys((tool.parameters, builtin.parameters if builtin else tool.parameters))
    return Offered(tool, tuple(compile_schema(text) for text in texts))


def _described(tool: Tool, definition: Definition) -> Tool:
    """The built-in `tool` with what the definition states; its effect is a fact and stays."""
    stated = {"description": definition.description, "after_call_hint": definition.after_call_hint}
    if definition.parameters is not None:
        stated["parameters"] = json.dumps(definition.parameters, ensure_ascii=False)
    return dataclasses.replace(tool, **{name: value for name, value in stated.items() if value is not None})


def _unique(good: dict[Path, list[Definition]]) -> Iterable[tuple[Path, Definition]]:
    """Definitions whose name no other has; the others are refused, all of them."""
    stated = [(path, definition) for path, definitions in good.items() for definition in definitions]
    count = Counter(definition.name.casefold() for _, definition in stated)
    for path, definition in stated:
        if count[definition.name.casefold()] == 1:
            yield path, definition
        else:
            log.error("tool refused", file=path.name, tool=definition.name, problem="name: defined more than once")
