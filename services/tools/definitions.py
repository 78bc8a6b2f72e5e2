"""Definition files, tools/*.backend: a tool described anew, or a user's own tool that is a command.

    {"tools": [{"type": "function", "name": …, "description": …, "afterCallHint": …, "parameters": {JSON Schema},
                "effect": "read | idempotent | once", "command": ["python3", "script.py"]}]}

A definition with the name of a built-in tool replaces what it states of description, parameters and hint.
`command` makes a tool of one's own: it runs in the sandbox, in the chat's workspace, with the tools folder readable;
arguments that name files of the folder are made absolute; the call's arguments are JSON on its standard input.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator

from services.tools.arguments import compile_schema

SUFFIX = ".backend"

FILE_BYTES_MAX = 1024 * 1024
"""Definitions are written by people."""

EMPTY_SCHEMA: dict[str, Any] = {"type": "object", "properties": {}}


class Definition(BaseModel):
    """One tool as a file states it. What is absent is left as it is, or has the default of `once` and no parameters."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["function"] = "function"
    # The names that model providers accept.
    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    description: str | None = None
    after_call_hint: str | None = Field(default=None, validation_alias=AliasChoices("afterCallHint", "after_call_hint"))
    parameters: dict[str, Any] | None = None
    effect: Literal["read", "idempotent", "once"] | None = None
    approval: Any = None
    command: Annotated[tuple[str, ...], Field(min_length=1)] | None = None

    @field_validator("parameters")
    @classmethod
    def _is_schema(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is not None:
            compile_schema(json.dumps(value))
            if value.get("type") != "object":
                raise ValueError('a JSON Schema of an object is expected: {"type": "object", …}')
        return value


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    tools: list[Definition]


class BadDefinition(Exception):
    """Why a file is refused: its field and what was expected there. Kept inside this service, for the log."""


def read_definitions(path: Path) -> list[Definition]:
    """The definitions of one file. Raises BadDefinition."""
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise BadDefinition(f"larger than {FILE_BYTES_MAX} bytes")
        return _File.model_validate(json.loads(path.read_text(encoding="utf-8"))).tools
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")
        message = first["msg"].removeprefix("Value error, ").splitlines()[0]
        raise BadDefinition(f"{field or 'the file'}: {message}") from error
    except RecursionError as error:
        raise BadDefinition("nested too deeply") from error
    except ValueError as error:
        raise BadDefinition(f"not valid JSON: {error}") from error
    except OSError as error:
        raise BadDefinition(f"cannot be read: {error.strerror}") from error
