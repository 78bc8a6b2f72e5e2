"""Finds all problems of a definition; plain parsing stops at the first kind of problem."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from services.orchestrator.agents.definition.agent import Definition
from services.orchestrator.agents.definition.reading import (
    DefinitionError,
    find_ineffective,
    load_object,
)
from services.runtime.files.refused_files import describe_rule


def list_tool_names(agent: Definition) -> Iterator[tuple[str, str]]:
    """Yield field and name of each tool in any list of the definition."""
    plan = agent.plan_execute
    sections = {
        "": agent,
        "plain.": agent.plain,
        "react.": agent.react,
        "planExecute.plan.": plan and plan.plan,
        "planExecute.execute.": plan and plan.execute,
        "planExecute.summary.": plan and plan.summary,
        "custom.": agent.custom,
        **{f"custom.stages.{name}.": own for name, own in (agent.custom.stages if agent.custom else {}).items()},
    }
    for path, section in sections.items():
        config = section.tool_config if section is not None else None
        lists: dict[str, Collection[str]] = (
            {"backends": config.backends, "frontends": config.frontends, "actions": config.actions} if config else {}
        )
        for kind, names in lists.items():
            yield from number_names(f"{path}toolConfig.{kind}", names)


def number_names(field: str, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    return ((f"{field}.{at}", name) for at, name in enumerate(names))


ROUNDS_MAX = 20
"""Maximum number of checks of one definition. Each check removes the invalid fields it finds; two suffice for what
people write."""


RENAMED = {"toolPolicy": "toolChoice"}
"""Fields that a definition may also spell another way."""

ALTERNATIVES = frozenset({"str", "int", "float", "bool", "dict"})
"""Types that a field's union may include; alternatives that are classes begin with a capital letter."""


TAKEN, LACKS = object(), ""
"""TAKEN replaces a removed list item; LACKS is the key that marks an object for removal."""


@dataclass(frozen=True, slots=True)
class Problem:
    field: str
    """Path of the field; empty for the text as a whole."""
    rule: str
    is_warning: bool = False

    def __str__(self) -> str:
        return f"{self.field}: {self.rule}" if self.field else self.rule


def find_problems(
    source: bytes, file_key: str = "", check: Callable[[Definition], list[Problem]] | None = None
) -> tuple[Definition | None, list[Problem]]:
    """Return the agent, or None if it has an error, and all problems: errors before warnings, each sorted by field.

    `check` looks for further errors in the definition that remains without its invalid fields.
    """
    try:
        given = load_object(source)
    except DefinitionError as error:
        return None, [Problem("", str(error))]
    if file_key:
        given = {"key": file_key} | given
    agent, errors = _check_rounds(given)
    warnings = [Problem(field, "has no effect", is_warning=True) for field in find_ineffective(given)]
    found = [Problem(field, rule) for field, rule in sorted(errors.items())]
    if agent is not None and check is not None:
        found = sorted([*found, *check(agent)], key=lambda problem: problem.field)
    return (None if found else agent), [*found, *sorted(warnings, key=lambda problem: problem.field)]


def _check_rounds(given: dict[str, Any]) -> tuple[Definition | None, dict[str, str]]:
    left, errors = copy.deepcopy(given), dict[str, str]()
    for _ in range(ROUNDS_MAX):
        try:
            return Definition.model_validate(left | {"hash": ""}), errors
        except ValidationError as error:
            found = _collect(left, error)
        errors |= {field: rule for field, rule in found.items() if not any(_is_about(field, one) for one in errors)}
        before = copy.deepcopy(left)
        for field in found:
            _take_out(left, field)
        _sweep(left)
        if left == before:
            break
    return None, errors


def _collect(given: dict[str, Any], error: ValidationError) -> dict[str, str]:
    """Return rules by field; those of one field are joined."""
    found: dict[str, list[str]] = {}
    for item in error.errors():
        at = _find_path(given, item["loc"], item["type"])
        for line in describe_rule(item, Definition).split("\n"):
            field, rule = _split_line(at, line) if item["type"] == "value_error" else (at, line)
            found.setdefault(field, []).append(rule)
    # Of the alternatives that a field has, the one that the text comes closest to is looked at further down.
    deepest = [field for field in found if not any(other.startswith(f"{field}.") for other in found)]
    return {field: "; or ".join(dict.fromkeys(found[field])) for field in deepest}


def _find_path(given: Any, loc: tuple[str | int, ...], kind: str) -> str:
    """Return the field path of an error; parts of `loc` that name a union's alternative are skipped."""
    parts: list[str] = []
    for at, part in enumerate(loc):
        is_last = at == len(loc) - 1
        if isinstance(given, dict) and isinstance(part, str):
            part = RENAMED.get(part, part) if part not in given else part
            # Not an alternative that was tried for a field.
            is_field = part.isidentifier() and part[0].islower() and part not in ALTERNATIVES
            if part not in given and not (is_last and kind == "missing") and not is_field:
                continue
            given = given.get(part)
        elif isinstance(given, list) and isinstance(part, int) and part < len(given):
            given = given[part]
        else:
            continue
        parts.append(str(part))
    return ".".join(parts)


def _split_line(at: str, line: str) -> tuple[str, str]:
    """Split a message of a whole-definition check into its field, below `at`, and its rule."""
    field, separator, rule = line.partition(": ")
    if not separator or not all(part.isidentifier() for part in field.split(".")):
        return at, line
    return (f"{at}.{field}" if at else field), rule


def _is_about(field: str, known: str) -> bool:
    """Return whether the two paths are equal or one contains the other."""
    return f"{field}.".startswith(f"{known}.") or f"{known}.".startswith(f"{field}.")


def _take_out(given: Any, field: str) -> None:
    """Remove a field, or the object that lacks a required field; list items are marked for `_sweep`."""
    *path, last = field.split(".")
    for part in path:
        given = given.get(part) if isinstance(given, dict) else _get_item(given, part)
    if isinstance(given, list):
        if last.isdecimal() and int(last) < len(given):
            given[int(last)] = TAKEN
    elif isinstance(given, dict) and last in given:
        del given[last]
    elif isinstance(given, dict):
        given[LACKS] = TAKEN


def _sweep(given: Any) -> None:
    """Remove what is marked."""
    if isinstance(given, dict):
        for name, value in [*given.items()]:
            if isinstance(value, dict) and LACKS in value:
                del given[name]
            else:
                _sweep(value)
        given.pop(LACKS, None)
    elif isinstance(given, list):
        for value in given:
            _sweep(value)
        given[:] = [value for value in given if value is not TAKEN]


def _get_item(given: Any, part: str) -> Any:
    if isinstance(given, list) and part.isdecimal() and int(part) < len(given):
        return given[int(part)]
    return None


def list_unknown(names: Iterator[tuple[str, str]], known: frozenset[str], kind: str) -> list[Problem]:
    """Return a warning for each (field, name) pair with a name not in `known`; `known` is in lower case."""
    return [
        Problem(field, f"there is no {kind} {name!r}; the agent continues without it", is_warning=True)
        for field, name in names
        if name.casefold() not in known
    ]
