"""Definition files, tools/*.backend, *.action and *.frontend: a tool described anew, or a tool of the operator's own.

    {"tools": [{"type": "function", "name": …, "description": …, "afterCallHint": …, "parameters": {JSON Schema},
                "effect": "read | idempotent | once", "approval": "allow | ask | deny",
                "command": ["python3", "script.py"], "viewport": …, "timeoutMs": …}]}

.backend: a definition with the name of a built-in tool replaces what it states of description, parameters, hint and
approval; `command` makes a tool of one's own: it runs in the sandbox, in the chat's workspace, with the tools folder
readable; arguments that name files of the folder are made absolute; the call's arguments are JSON on its standard
input. .action: the front end does it. .frontend: the front end shows the view `viewport`, else the one with the tool's
own name, and a submit is waited for. A file of a view that is JSON with `tools` defines frontend tools too (views.py).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from services.runtime.rpc.field_rules import JSON_DEPTH_MAX, measure_json_depth
from services.tools.toolkit.arguments import compile_schema
from services.tools.toolkit.tool import Approval, Effect, Kind

KINDS: dict[str, Kind] = {".backend": "backend", ".action": "action", ".frontend": "frontend"}
"""By the suffix of the file."""

FILE_BYTES_MAX = 1024 * 1024
"""Definitions are written by people."""

WAIT_MS_MAX = 24 * 60 * 60 * 1000
"""A day: nobody looks at a question longer."""

EMPTY_SCHEMA: dict[str, Any] = {"type": "object", "properties": {}}

ViewKey = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,128}$")]
"""Also the name of the view's file, without its suffix."""

BELONGS_TO: dict[str, Kind] = {"command": "backend", "viewport": "frontend", "timeout_ms": "frontend"}
"""Fields that mean something for one kind alone."""


class Definition(BaseModel):
    """One tool as a file states it. What is absent is left as it is, or has the default of `once` and no parameters."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["function"] = "function"
    """May stand there, as in model providers' APIs."""

    # The names that model providers accept.
    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    """Name by which models call it and agents list it; compared without regard to case. A name that two files define is
    refused in both."""

    description: str | None = None
    """What it does, for the model."""

    after_call_hint: str | None = Field(default=None, validation_alias=AliasChoices("afterCallHint", "after_call_hint"))
    """What the model should do with a result; the hints of an agent's tools form a section of its system message. Also
    `after_call_hint`."""

    parameters: dict[str, Any] | None = None
    """JSON Schema (draft 2020-12) of the arguments, an object. Left out, a tool of one's own takes none, and a built-in
    one keeps its schema. Arguments must fit a built-in tool's own schema as well."""

    effect: Effect | None = None
    """What may happen when a crash left no result: `read` and `idempotent` run again; a `once` tool does not, and a
    person or the model is told. Left out, `once`; a built-in tool keeps its own."""

    approval: Approval | None = None
    """Whether a person is asked before it runs: `ask` always, `allow` never, `deny` refuses every call. Patterns of the
    tool in approvals.yaml come before it. Left out, the risks in approvals.yaml decide."""

    command: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """Backend only: the program and its arguments. It runs in the sandbox, in the chat's workspace, with the call's
    arguments as JSON on standard input; standard output is the result. An argument that names a file of the tools
    folder becomes its absolute path. Left out, the definition describes a built-in tool anew."""

    viewport: ViewKey | None = None
    """Frontend only: the view to show, a file's name without its suffix. Left out, the view with the tool's own
    name."""

    timeout_ms: Annotated[int, Field(ge=1, le=WAIT_MS_MAX)] | None = Field(default=None, validation_alias="timeoutMs")
    """Frontend only: how long the run waits for a person, in milliseconds, a day at most. Left out, 300,000."""

    @field_validator("parameters")
    @classmethod
    def _check_schema(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is not None:
            compile_schema(json.dumps(value))
            if value.get("type") != "object":
                raise ValueError('a JSON Schema of an object is expected: {"type": "object", …}')
        return value

    @model_validator(mode="after")
    def _check_kind(self, info: ValidationInfo) -> Definition:
        """A field that means nothing for the kind, which is the validation's context, is refused."""
        for field, kind in BELONGS_TO.items():
            if getattr(self, field) is not None and info.context != kind:
                name = "timeoutMs" if field == "timeout_ms" else field
                raise ValueError(f"{name}: only a {kind} tool has it, and this one is of the kind {info.context}")
        return self


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    tools: list[Definition]
    """The tools of the file, all of the kind that its suffix says."""


class BadDefinition(Exception):
    """Why a file is refused: its field and what was expected there. Kept inside this service, for the log."""


def parse_definitions(value: Any, kind: Kind) -> list[Definition]:
    """The definitions in a file's JSON, all of one kind. Raises BadDefinition."""
    try:
        return _File.model_validate(value, context=kind).tools
    except ValidationError as error:
        raise BadDefinition(format_problem(error)) from error


def read_text(path: Path) -> str:
    """The text of a small file. Raises BadDefinition."""
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise BadDefinition(f"larger than {FILE_BYTES_MAX} bytes")
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BadDefinition(f"not UTF-8: {error.reason} at byte {error.start}") from error
    except OSError as error:
        raise BadDefinition(f"cannot be read: {error.strerror}") from error


def parse_json(text: str) -> Any:
    """The value in `text`. Raises BadDefinition."""
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise BadDefinition("nested too deeply") from error
    except ValueError as error:
        raise BadDefinition(f"not valid JSON: {error}") from error
    if measure_json_depth(value) > JSON_DEPTH_MAX:
        raise BadDefinition(f"nested too deeply: more than {JSON_DEPTH_MAX} levels")
    return value


def format_problem(error: ValidationError) -> str:
    """The first field that pydantic refuses, and the rule it breaks."""
    first = error.errors(include_url=False, include_input=False)[0]
    field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")
    message = first["msg"].removeprefix("Value error, ").splitlines()[0]
    return f"{field or 'the file'}: {message}"
