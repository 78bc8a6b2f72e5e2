"""Reads tools.yaml, next to the tools folder: tiers of optional tools, words to find them by, and users' credentials
that tools need.

An enabled tool loads at the start and is offered to agents that ask for that tier; others are discovered through a
user's @name or an agent's list.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Annotated

import structlog
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from headrace.yaml_loading import load_yaml
from services.runtime.auth.answerer_rule import AnswererRule
from services.runtime.files.refused_files import REFUSED_FILES, report_refusal
from services.tools.catalogue.definitions import BadDefinition, format_problem, read_text
from services.tools.toolkit.tool import Credential, Tool

log = structlog.get_logger()

CredentialName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_-]{1,32}$")]
ToolName = Annotated[str, StringConstraints(min_length=1, max_length=64)]
# A user's value must not end up in a variable that selects the code to run.
Variable = Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]{0,50}_(TOKEN|KEY|SECRET|PASSWORD|CREDENTIAL)$")]
ServerName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,32}$")]

Word = Annotated[str, StringConstraints(min_length=1, max_length=64)]


class Option(BaseModel):
    """Options of one tool; missing fields change nothing."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    enabled: bool | None = None
    """True puts the tool into the tier `enabled`, false into `discovered`. Left out, it stays in its tier. A core tool
    cannot be disabled."""

    always_available: bool | None = None
    """Whether every agent that may use tools sees it, listed or not; only for enabled and core tools."""

    category: Word | None = None
    """A word for people, shown by ListTools."""

    tags: Annotated[list[Word], Field(max_length=32)] | None = None
    """Words for people, shown by ListTools."""

    description: Annotated[str, StringConstraints(min_length=1)] | None = None
    """Replaces the tool's description for models."""

    def apply_to(self, tool: Tool) -> Tool:
        stated = self.model_dump(exclude_none=True, include={"always_available", "category", "description"})
        if self.tags is not None:
            stated["tags"] = tuple(self.tags)
        if self.enabled is not None and tool.tier != "core":
            stated["tier"] = "enabled" if self.enabled else "discovered"
        return dataclasses.replace(tool, **stated)


class DeclaredCredential(BaseModel):
    """A secret of the requester that tools or an MCP server need. A run that lacks it asks for it."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    description: Annotated[str, StringConstraints(min_length=1, max_length=2000)]
    """Description for the person who is asked for it."""

    obtain: Annotated[str, StringConstraints(min_length=1, max_length=2000)] = ""
    """Where to get it: an address, or an explanation. Left out, the description must suffice."""

    tools: dict[ToolName, Variable] = {}
    """Commands that need it, by tool name, each with the environment variable for it: capitals, digits and `_`, ending
    in `_TOKEN`, `_KEY`, `_SECRET`, `_PASSWORD` or `_CREDENTIAL`. A command that exits with status 77 reports that it
    was refused and nothing took effect; a new one is then requested."""

    servers: Annotated[list[ServerName], Field(max_length=64)] = []
    """MCP servers (by url) whose tools need it, as their Authorization header. Status 401 means that it was refused."""

    scheme: Annotated[str, StringConstraints(pattern=r"^[A-Za-z-]{0,32}$")] = "Bearer"
    """Scheme before it in that header; empty: none."""

    answerers: AnswererRule | None = Field(default=None, strict=False)
    """Users who may supply it, in the form of `answerers` in approvals.yaml. Left out, the requester."""

    @model_validator(mode="after")
    def _check_use(self) -> DeclaredCredential:
        if not (self.tools or self.servers):
            raise ValueError("tools or servers is needed")
        if self.answerers is not None and self.answerers.count > 1:
            raise ValueError("answerers.count: one supplies it; several must approve calls alone")
        return self

    def make_credential(self, name: str, variable: str) -> Credential:
        return Credential(
            name=name,
            description=self.description,
            obtain=self.obtain,
            variable=variable,
            scheme=self.scheme,
            answerers=self.answerers.make_answerers() if self.answerers is not None else None,
        )


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    credentials: Annotated[dict[CredentialName, DeclaredCredential], Field(max_length=64)] = {}
    """Credentials of users, by name: lower-case letters, digits, `_` and `-`, at most 32."""

    optional: dict[str, Option] = {}
    """Options by the tool's name, case-insensitive. An unknown name is only a warning, because its MCP server may be
    down."""


class ToolTiers:
    """The last valid content of tools.yaml."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._options: dict[str, tuple[str, Option]] = {}
        self._credentials: dict[str, DeclaredCredential] = {}

    def reload(self) -> None:
        """Read the file again; it may be missing. Never raises for its content."""
        try:
            file = _read_file(self._path) if os.path.exists(self._path) else _File()
            self._options = {name.casefold(): (name, option) for name, option in file.optional.items()}
            self._credentials = file.credentials
            REFUSED_FILES.labels("tool_options").set(0)
        except BadDefinition as problem:
            REFUSED_FILES.labels("tool_options").set(1)
            report_refusal("tool file refused", file=self._path.name, problem=str(problem), last_good_kept=True)

    def apply(self, tools: dict[str, Tool], *, are_all: bool = True) -> None:
        """Apply the file's options to `tools`, by case-folded name.

        If `are_all`, `tools` is complete, and tools that the file names but that are missing are logged.
        """
        for key, (name, option) in self._options.items():
            tool = tools.get(key)
            if tool is None:
                if are_all:  # its MCP server may be down
                    problem = f"optional.{name}: there is no such tool"
                    log.warning("tool option waits", file=self._path.name, problem=problem)
            elif problem := _find_problem(tool, option):
                report_refusal("tool option refused", file=self._path.name, problem=f"optional.{name}{problem}")
            else:
                tools[key] = option.apply_to(tool)
        for name, declared in self._credentials.items():
            commands = {key.casefold(): variable for key, variable in declared.tools.items()}
            for key in commands.keys() - tools.keys() if are_all else ():
                log.warning("credential waits", problem=f"tools.{key}: there is no such tool")
            users = [(key, variable) for key, variable in commands.items() if key in tools and not tools[key].server]
            users += [(key, "") for key, tool in tools.items() if tool.server in declared.servers]
            for key, variable in users:
                tool, credential = tools[key], declared.make_credential(name, variable)
                tools[key] = dataclasses.replace(tool, credentials=(*tool.credentials, credential))


def _find_problem(tool: Tool, option: Option) -> str:
    """Return the field and the rule that forbid the option; empty if it can be applied."""
    if tool.tier == "core" and option.enabled is False:
        return ".enabled: a core tool is in every installation"
    if not option.always_available:
        return ""
    if option.enabled is False or (option.enabled is None and tool.tier == "discovered"):
        return ".always_available: only an enabled tool can be"
    return ""


def _read_file(path: Path) -> _File:
    try:
        return _File.model_validate(load_yaml(read_text(path)) or {})
    except ValidationError as error:
        raise BadDefinition(format_problem(error, _File)) from error
    except ValueError as error:
        raise BadDefinition(str(error)) from error
