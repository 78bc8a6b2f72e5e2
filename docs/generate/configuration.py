"""Tables of configuration models (pydantic) and settings (dataclasses), with the docstrings of their fields."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
import types
import typing
from collections.abc import Iterator
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

from docs.generate import sources
from docs.generate.markdown import code, format_table, join_lines

TYPES = {str: "text", int: "integer", float: "number", bool: "true or false", Path: "path"}


def read_field_docs(cls: type[Any]) -> dict[str, str]:
    """Return the docstrings of the fields of a class and its bases, by field name."""
    docs: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("services."):
            (node,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
            assert isinstance(node, ast.ClassDef)
            for field, after in zip(node.body, node.body[1:], strict=False):
                if isinstance(field, ast.AnnAssign) and isinstance(after, ast.Expr):
                    docs[ast.unparse(field.target)] = join_lines(ast.literal_eval(after.value))
    return docs


def describe_model(name: str, base: str = "") -> str:
    """Return the table of a configuration model's fields (sources.MODELS), without those of the model `base`."""
    cls = sources.MODELS[name]
    schema, docs = cls.model_json_schema(), read_field_docs(cls)
    required = schema.get("required", ())
    skipped = sources.NOT_FOR_FILES | ({(cls, field) for field in sources.MODELS[base].model_fields} if base else set())
    rows: list[list[str]] = []
    for field, info in cls.model_fields.items():
        if (cls, field) in skipped:
            continue
        alias = next(key for key in schema["properties"] if key in _input_names(field, info))
        stated = schema["properties"][alias]
        default = sources.OTHER_DEFAULTS.get((cls, field)) or ("required" if alias in required else _default(stated))
        rows.append([code(alias), _describe_type(stated, cls), default, docs[field]])
    return format_table("field|type|default|meaning", rows)


def _input_names(field: str, info: Any) -> set[str]:
    alias = info.validation_alias
    return {field, info.alias, *([alias] if isinstance(alias, str) else getattr(alias, "choices", ()))}


def _default(schema: dict[str, Any]) -> str:
    value = schema.get("default")
    return "" if value in (None, "", [], {}) or isinstance(value, dict) else code(value)


def _describe_type(schema: dict[str, Any], cls: type[Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_describe_type(part, cls) for part in schema["anyOf"] if part != {"type": "null"})
    if "$ref" in schema:
        return _link(schema["$ref"].rpartition("/")[2], cls)
    if "enum" in schema or "const" in schema:
        return ", ".join(code(word) for word in schema.get("enum", [schema.get("const")]))
    match schema.get("type"):
        case "array":
            return f"list of {_describe_type(schema['items'], cls)}"
        case "object" if isinstance(schema.get("additionalProperties"), dict):
            return f"object, by name: {_describe_type(schema['additionalProperties'], cls)}"
        case "object":
            return "JSON object"
        case "integer" | "number" as kind:
            return kind + _describe_range(schema)
        case "boolean":
            return "true or false"
        case _:
            return "text"


def _describe_range(schema: dict[str, Any]) -> str:
    bounds: list[str] = []
    if (above := schema.get("exclusiveMinimum")) is not None:
        bounds.append(f"{above + 1} or more" if schema["type"] == "integer" else f"more than {above:g}")
    if (least := schema.get("minimum")) is not None:
        bounds.append(f"{least:g} or more")
    if (most := schema.get("maximum")) is not None:
        bounds.append(f"at most {most:,}")
    return f" ({', '.join(bounds)})" if bounds else ""


def _link(class_name: str, owner: type[Any]) -> str:
    """Return a link to the section about another model of the same service."""
    services = [owner.__module__.split(".")[:2], ["services", "runtime"]]
    same = [anchor for anchor, cls in sources.MODELS.items() if cls.__module__.split(".")[:2] in services]
    (anchor,) = [anchor for anchor in same if sources.MODELS[anchor].__name__ == class_name]
    return f"[object](#{anchor})"


@dataclass(frozen=True, slots=True)
class Setting:
    """One environment variable of a service."""

    service: str
    name: str
    aliases: tuple[str, ...]
    kind: str
    default: Any
    meaning: str
    owner: type[Any]
    """Dataclass that defines the field."""


def read_settings(service: str) -> list[Setting]:
    """Return all settings of a service (sources.CONFIGS)."""
    return list(_read_settings(sources.CONFIGS[service], service, None))


def _read_settings(cls: type[Any], service: str, defaults: Any) -> Iterator[Setting]:
    hints, docs = typing.get_type_hints(cls), read_field_docs(cls)
    for field in dataclasses.fields(cls):
        kind = hints[field.name]
        if dataclasses.is_dataclass(kind):
            yield from _read_settings(typing.cast("type[Any]", kind), service, field.default)
            continue
        name = field.metadata.get("name") or f"{sources.PREFIX}{service.upper()}_{field.name.upper()}"
        default = getattr(defaults, field.name) if field.default is MISSING else field.default
        if isinstance(kind, types.UnionType):
            kind = next(option for option in typing.get_args(kind) if option is not type(None))
        aliases = field.metadata.get("aliases", ())
        yield Setting(service, name, aliases, TYPES[kind], default, docs[field.name], cls)


def list_settings(group: str) -> str:
    """Return the table of a service's settings, of `credentials`, or of `shared` settings without a service in
    their name.
    """
    if group in sources.CONFIGS:
        own = f"{sources.PREFIX}{group.upper()}_"
        return _format_settings([[setting] for setting in read_settings(group) if setting.name.startswith(own)])
    by_name: dict[str, list[Setting]] = {}
    for service in sources.CONFIGS:
        for setting in read_settings(service):
            if not setting.name.startswith(f"{sources.PREFIX}{service.upper()}_"):
                by_name.setdefault(setting.name, []).append(setting)
    is_wanted = group == "credentials"
    return _format_settings([found for found in by_name.values() if (found[0].owner is sources.AUTH) == is_wanted])


def _format_settings(settings: list[list[Setting]]) -> str:
    return format_table("variable|type|default|meaning", map(_format_setting, settings))


def _format_setting(same: list[Setting]) -> list[str]:
    """Return the row of one variable, merging the meanings in all services that read it."""
    first, services = same[0], dict[str, list[str]]()
    for setting in same:
        services.setdefault(setting.meaning, []).append(setting.service)
    meanings = [text if len(services) == 1 else f"{', '.join(names)}: {text}" for text, names in services.items()]
    if first.aliases:
        meanings.append(f"Also {', '.join(map(code, first.aliases))}.")
    return [code(first.name), first.kind, _format_default(first.default), " ".join(meanings)]


def _format_default(value: Any) -> str:
    if value is None or value == "":
        return ""
    return code(value if isinstance(value, bool) else str(value))
