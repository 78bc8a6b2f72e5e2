"""The tools in force: the built-in ones, what the tools folder makes of them and adds, and what other sources give.

Whatever is bad is named in the log and left out, and harms nothing else.
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

from services.tools.builtin import BUILTIN
from services.tools.catalogue.command_tool import own_tool
from services.tools.catalogue.definitions import EMPTY_SCHEMA, Definition
from services.tools.catalogue.tool_tiers import Tiers
from services.tools.catalogue.tools_folder import Stated, ToolsFolder
from services.tools.catalogue.views import View
from services.tools.toolkit.arguments import compile_schema
from services.tools.toolkit.tool import Tool, answer_ok

log = structlog.get_logger()

BUILTIN_BY_NAME = {tool.name.casefold(): tool for tool in BUILTIN}


@dataclass(frozen=True, slots=True)
class Offered:
    """A tool with its arguments' validators, made once."""

    tool: Tool
    schemas: tuple[Draft202012Validator, ...]
    """Its own; for a built-in tool with a stated schema both, because the code relies on the built-in one."""


class Catalogue:
    """Tools by name without regard to case. One for the service; what is in force is replaced in one step."""

    def __init__(self, folder: Path) -> None:
        """`folder` has the definition files; tools.yaml stands beside it."""
        self._folder = ToolsFolder(folder)
        self._tiers = Tiers(folder.with_name("tools.yaml"))
        self._sources: dict[str, tuple[Tool, ...]] = {}
        self._offered: dict[str, Offered] = {}
        self.reload()

    def find(self, name: str) -> Offered | None:
        return self._offered.get(name.casefold())

    def view(self, key: str) -> View | None:
        return self._folder.views.get(key.casefold())

    def tools(self) -> list[Tool]:
        """All of them, ordered by name."""
        return sorted((offered.tool for offered in self._offered.values()), key=lambda tool: tool.name)

    def reload(self) -> None:
        """Read the files again; never raises for what they hold."""
        self._folder.reload()
        self._tiers.reload()
        self._combine()

    def offer(self, source: str, tools: Iterable[Tool]) -> None:
        """Replace what `source`, an MCP server, gives; nothing takes its tools away.

        A tool whose name a built-in one or a file has is refused, so that a server harms only itself.
        """
        self._sources[source] = tuple(tools)
        self._combine()

    def _combine(self) -> None:
        tools = dict(BUILTIN_BY_NAME)
        for stated in self._folder.stated:
            if tool := self._make(stated):
                tools[tool.name.casefold()] = tool
        tools |= {tool.name.casefold(): tool for tool in self._given(tools)}
        self._tiers.apply(tools)
        offered = {key: _offer(tool) for key, tool in tools.items()}
        self._offered = {key: each for key, each in offered.items() if each is not None}
        log.info("tools loaded", tools=len(self._offered), views=len(self._folder.views))

    def _make(self, stated: Stated) -> Tool | None:
        """The tool that a definition describes anew or adds; None when it does neither."""
        definition, builtin = stated.definition, BUILTIN_BY_NAME.get(stated.definition.name.casefold())
        problem = ""
        if builtin is not None and (stated.kind != "backend" or definition.command is not None):
            problem = f"name: {builtin.name} is built in; give the tool another name"
        elif builtin is not None:
            return _described(builtin, definition)
        elif stated.kind != "backend":
            return self._of_front_end(stated)
        elif definition.command is None:
            problem = "command: missing, and no built-in tool has this name"
        if problem:
            log.error("tool refused", file=stated.file, tool=definition.name, problem=problem)
            return None
        return own_tool(definition, self._folder.path)

    def _of_front_end(self, stated: Stated) -> Tool:
        """An action or a frontend tool."""
        definition, viewport_key = stated.definition, ""
        if stated.kind == "frontend":
            viewport_key = definition.viewport or definition.name
        is_shown = not viewport_key or self.view(viewport_key) is not None
        return Tool(
            name=definition.name,
            description=definition.description or "",
            parameters=json.dumps(definition.parameters or EMPTY_SCHEMA, ensure_ascii=False),
            effect=definition.effect or "once",
            execute=answer_ok,
            tier="enabled",
            after_call_hint=definition.after_call_hint or "",
            kind=stated.kind,
            approval=definition.approval,
            viewport_key=viewport_key,
            timeout_ms=definition.timeout_ms,
            unavailable="" if is_shown else f"its view {viewport_key!r} does not exist",
        )

    def _given(self, taken: dict[str, Tool]) -> Iterable[Tool]:
        """The sources' tools whose name nothing else has."""
        given = [(source, tool) for source, tools in self._sources.items() for tool in tools]
        count = Counter([*taken, *(tool.name.casefold() for _, tool in given)])
        for source, tool in given:
            if count[tool.name.casefold()] == 1:
                yield tool
            else:
                log.error("tool refused", source=source, tool=tool.name, problem="name: defined more than once")


def _offer(tool: Tool) -> Offered | None:
    """The tool with its validators; None when its schema, which a file's is not, is none."""
    builtin = BUILTIN_BY_NAME.get(tool.name.casefold(), tool)
    try:
        return Offered(
            tool, tuple(compile_schema(text) for text in dict.fromkeys((tool.parameters, builtin.parameters)))
        )
    except ValueError as error:
        log.error("tool refused", tool=tool.name, problem=f"parameters: {error}")
        return None


def _described(tool: Tool, definition: Definition) -> Tool:
    """The built-in `tool` with what the definition states; its effect is a fact and stays."""
    stated = {
        "description": definition.description,
        "after_call_hint": definition.after_call_hint,
        "approval": definition.approval,
    }
    if definition.parameters is not None:
        stated["parameters"] = json.dumps(definition.parameters, ensure_ascii=False)
    return dataclasses.replace(tool, **{name: value for name, value in stated.items() if value is not None})
