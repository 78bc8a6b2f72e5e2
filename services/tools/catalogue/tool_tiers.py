"""Reads tools.yaml, beside the tools folder: which optional tools are in force for whom, and words to find them by. An
enabled tool loads at the start and is offered to agents that ask for that tier; one that is not is discovered: a user's
@name or an agent's list brings it in."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Annotated

import structlog
import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from services.runtime.refused_files import REFUSED_FILES, report_refusal
from services.tools.catalogue.definitions import BadDefinition, format_problem, read_text
from services.tools.toolkit.tool import Tool

log = structlog.get_logger()

Word = Annotated[str, StringConstraints(min_length=1, max_length=64)]


class Option(BaseModel):
    """Options of one tool; what is absent is left as it is."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    enabled: bool | None = None
    """True puts the tool into the tier `enabled`, false into `discovered`. Left out, it stays where it is. A core tool
    cannot be switched off."""

    always_available: bool | None = None
    """Whether every agent that may use tools sees it, listed or not; only an enabled or core tool can be."""

    category: Word | None = None
    """One word for people, shown by ListTools."""

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


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    optional: dict[str, Option] = {}
    """Options by the tool's name, without regard to case. A name that no tool has is a warning: its MCP server may be
    down."""


class ToolTiers:
    """The last good content of tools.yaml."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._options: dict[str, tuple[str, Option]] = {}

    def reload(self) -> None:
        """Read the file again; it need not exist. Never raises for its content."""
        try:
            options = _read_options(self._path) if os.path.exists(self._path) else {}
            self._options = {name.casefold(): (name, option) for name, option in options.items()}
            REFUSED_FILES.labels("tool_options").set(0)
        except BadDefinition as problem:
            REFUSED_FILES.labels("tool_options").set(1)
            report_refusal("tool file refused", file=self._path.name, problem=str(problem), last_good_kept=True)

    def apply(self, tools: dict[str, Tool]) -> None:
        """Apply the file's options to `tools`, which are keyed by casefolded name."""
        for key, (name, option) in self._options.items():
            tool = tools.get(key)
            if tool is None:  # its MCP server may be down
                log.warning(
                    "tool option waits", file=self._path.name, problem=f"optional.{name}: there is no such tool"
                )
            elif problem := _find_problem(tool, option):
                report_refusal("tool option refused", file=self._path.name, problem=f"optional.{name}{problem}")
            else:
                tools[key] = option.apply_to(tool)


def _find_problem(tool: Tool, option: Option) -> str:
    """Find the field and the rule that forbid the option; empty when it can be applied."""
    if tool.tier == "core" and option.enabled is False:
        return ".enabled: a core tool is in every installation"
    if not option.always_available:
        return ""
    if option.enabled is False or (option.enabled is None and tool.tier == "discovered"):
        return ".always_available: only an enabled tool can be"
    return ""


def _read_options(path: Path) -> dict[str, Option]:
    try:
        return _File.model_validate(yaml.safe_load(read_text(path)) or {}).optional
    except ValidationError as error:
        raise BadDefinition(format_problem(error)) from error
    except RecursionError as error:
        raise BadDefinition("nested too deeply") from error
    except (yaml.YAMLError, ValueError) as error:
        raise BadDefinition(f"not valid YAML: {' '.join(str(error).split())}") from error
