"""The available tools: built-in ones, those of the tools folder, and those of MCP servers.

A bad definition is logged and left out.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import structlog

from headrace.v1 import tools_pb2
from services.runtime.files.refused_files import report_refusal
from services.runtime.formats.json_schema import CompiledSchema, compile_schema
from services.runtime.rpc.call_ids import find_tool_credential
from services.tools.builtin import BUILTIN
from services.tools.catalogue.definitions import EMPTY_SCHEMA, Definition
from services.tools.catalogue.tool_tiers import ToolTiers
from services.tools.catalogue.tools_folder import VIEWS_FOLDER, FileDefinition, ToolsFolder, View
from services.tools.toolkit.api_request import ApiRequest, send_request
from services.tools.toolkit.commands import Command, run_command
from services.tools.toolkit.tool import Execute, FrontEnd, Tool, ToolContext, answer_ok

log = structlog.get_logger()

BUILTIN_BY_NAME = {tool.name.casefold(): tool for tool in BUILTIN}


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    tool: Tool
    schemas: tuple[CompiledSchema, ...]
    """If a file replaces a built-in schema, the built-in one applies as well, because the code relies on it."""


class Catalogue:
    """All tools by name, case-insensitive; each change replaces all entries in one step."""

    def __init__(self, folder: Path) -> None:
        """`folder` is the tools folder; the other files are next to it. Nothing is read yet."""
        options = folder.with_name("tools.yaml")
        self.paths = (folder, folder.with_name(VIEWS_FOLDER), options)
        """The folders and files that are read."""
        self._folder = ToolsFolder(folder)
        self._tiers = ToolTiers(options)
        self._sources: dict[str, tuple[Tool, ...]] = {}
        self._entries: dict[str, CatalogueEntry] = {}

    def find(self, name: str, own: Iterable[Tool] = ()) -> CatalogueEntry | None:
        """Find a tool; `own` are those that MCP servers list only for the current user."""
        known = self._entries.get(name.casefold())
        if known is None and (tool := self._choose_own(own).get(name.casefold())) is not None:
            return _make_entry(tool)
        return known

    def find_view(self, key: str) -> View | None:
        return self._folder.views.get(key.casefold())

    def list_tools(self, own: Iterable[Tool] = ()) -> list[Tool]:
        """List the tools by name, with `own` as in `find`."""
        common = (entry.tool for entry in self._entries.values())
        return sorted([*common, *self._choose_own(own).values()], key=lambda tool: tool.name)

    @property
    def requests(self) -> dict[str, ApiRequest]:
        """Return the requests to HTTP APIs by the name of their tool."""
        stated = (each.definition for each in self._folder.definitions)
        return {definition.name: definition.request for definition in stated if definition.request is not None}

    def reload(self) -> None:
        self.read_files()
        self.rebuild()

    def read_files(self) -> None:
        """Read the files again, for the next `rebuild`; blocks, and may run in a thread."""
        self._folder.reload()
        self._tiers.reload()

    def replace_source(self, source: str, tools: Iterable[Tool]) -> None:
        """Replace an MCP server's tools. A tool with the name of a built-in or file tool is refused, so that the server
        harms only itself."""
        self._sources[source] = tuple(tools)
        self.rebuild()

    def rebuild(self) -> None:
        tools = dict(BUILTIN_BY_NAME)
        for stated in self._folder.definitions:
            if tool := self._make_tool(stated):
                tools[tool.name.casefold()] = tool
        source_tools = [(source, tool) for source, given in self._sources.items() for tool in given]
        tools |= {tool.name.casefold(): tool for tool in _drop_taken(source_tools, tools)}
        self._tiers.apply(tools)
        self._entries = {key: _make_entry(tool) for key, tool in tools.items()}
        log.info("tools loaded", tools=len(self._entries), views=len(self._folder.views))

    def _choose_own(self, own: Iterable[Tool]) -> dict[str, Tool]:
        given = [(f"mcp server {tool.server}", tool) for tool in own]
        tools = {tool.name.casefold(): tool for tool in _drop_taken(given, self._entries)}
        self._tiers.apply(tools, are_all=False)
        return tools

    def _make_tool(self, stated: FileDefinition) -> Tool | None:
        definition, builtin = stated.definition, BUILTIN_BY_NAME.get(stated.definition.name.casefold())
        is_description = stated.kind == "backend" and definition.command is None and definition.request is None
        if builtin is not None and is_description:
            return _override_builtin(builtin, definition)
        if builtin is not None:
            problem = f"name: {builtin.name} is built in; give the tool another name"
        elif stated.kind != "backend":
            return self._make_client_tool(stated, stated.kind)
        elif definition.command is not None:
            return make_command_tool(definition, self._folder.path)
        elif (request := definition.request) is not None:
            return _make_defined_tool(definition, lambda context: send_request(context, request))
        else:
            problem = "command: missing, and so is request; no built-in tool has this name"
        report_refusal("tool refused", file=stated.file, tool=definition.name, problem=problem)
        return None

    def _make_client_tool(self, stated: FileDefinition, kind: Literal["action", "frontend"]) -> Tool:
        definition = stated.definition
        viewport_key = ""
        if kind == "frontend":
            viewport_key = definition.viewport or definition.name
            if definition.viewport is None and self.find_view(viewport_key) is None and self.find_view(stated.view_key):
                viewport_key = stated.view_key
        schema = definition.result_schema
        result_schema = "" if schema is None else json.dumps(schema, ensure_ascii=False)
        # A tool that a view's file defines needs none: a front end then shows its own form.
        is_shown = not viewport_key or bool(stated.view_key) or self.find_view(viewport_key) is not None
        return dataclasses.replace(
            _make_defined_tool(definition, answer_ok),
            front_end=FrontEnd(kind, viewport_key, definition.timeout_ms, result_schema),
            unavailable="" if is_shown else f"its view {viewport_key!r} does not exist",
        )


def _drop_taken(source_tools: Sequence[tuple[str, Tool]], taken: Iterable[str]) -> Iterable[Tool]:
    """Yield the tools of MCP servers with names that no other tool has."""
    count = Counter([*taken, *(tool.name.casefold() for _, tool in source_tools)])
    for source, tool in source_tools:
        if count[tool.name.casefold()] == 1:
            yield tool
        else:
            log.error("tool refused", source=source, tool=tool.name, problem="name: defined more than once")


def _make_entry(tool: Tool) -> CatalogueEntry:
    builtin = BUILTIN_BY_NAME.get(tool.name.casefold(), tool)
    schemas = dict.fromkeys((tool.parameters, builtin.parameters))
    return CatalogueEntry(tool, tuple(compile_schema(schema) for schema in schemas))


def _override_builtin(tool: Tool, definition: Definition) -> Tool:
    # The effect of a built-in tool is a fact and stays.
    stated = {
        "description": definition.description,
        "after_call_hint": definition.after_call_hint,
        "approval": definition.approval,
        "answerers": definition.make_answerers(),
    }
    if definition.parameters is not None:
        stated["parameters"] = json.dumps(definition.parameters, ensure_ascii=False)
    return dataclasses.replace(tool, **{name: value for name, value in stated.items() if value is not None})


def make_command_tool(definition: Definition, folder: Path) -> Tool:
    """Create the tool of a command; arguments that name files of `folder` become absolute paths."""
    assert definition.command is not None
    folder = folder.resolve()
    arguments = tuple(
        str(folder / argument) if (folder / argument).is_file() else argument for argument in definition.command
    )

    def execute(context: ToolContext) -> AsyncGenerator[tools_pb2.ToolDelta]:
        needed = context.credentials
        command = Command(
            arguments,
            input=json.dumps(context.arguments, ensure_ascii=False),
            readable=(str(folder),),
            environment=tuple((one.variable, find_tool_credential(one.name)) for one in needed if one.variable),
            credential=needed[0].name if needed else "",
            shown="stdout",
        )
        return run_command(context, command)

    tool = _make_defined_tool(definition, execute)
    return dataclasses.replace(tool, begins_itself=True, needs=frozenset({"sandbox"}))


def _make_defined_tool(definition: Definition, execute: Execute) -> Tool:
    return Tool(
        name=definition.name,
        description=definition.description or "",
        parameters=json.dumps(definition.parameters or EMPTY_SCHEMA, ensure_ascii=False),
        effect=definition.effect or "once",
        execute=execute,
        tier="enabled",
        after_call_hint=definition.after_call_hint or "",
        approval=definition.approval,
        answerers=definition.make_answerers(),
    )
