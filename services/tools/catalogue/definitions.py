"""Definition files, tools/*.backend, *.action and *.frontend (docs/reference/tools.md).

A .backend file redefines built-in tools or defines tools that run commands. The front end performs the others, and a
.frontend tool waits for a submit. JSON with `tools` in a view's file also defines frontend tools (tools_folder.py).
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
from pydantic.alias_generators import to_camel

from headrace.regular_files import read_regular_text
from headrace.v1 import common_pb2
from services.runtime.auth.answerer_rule import AnswererRule
from services.runtime.files.refused_files import describe_rule, load_config_json
from services.tools.toolkit.api_request import ApiRequest
from services.tools.toolkit.tool import Approval, Effect, Kind, check_schema

KINDS: dict[str, Kind] = {".backend": "backend", ".action": "action", ".frontend": "frontend"}
"""Kind of a file's tools, by its suffix; a tool's `type` takes precedence."""

FILE_BYTES_MAX = 1024 * 1024
"""Maximum size of a file; people write them by hand."""

RESULT_SCHEMA_BYTES_MAX = 64 * 1024
"""Maximum size of a schema that every gate of the tool repeats when it opens."""

WAIT_MS_MAX = 24 * 60 * 60 * 1000
"""Longest wait for a person, one day; no one looks at a question longer."""

EMPTY_SCHEMA: dict[str, Any] = {"type": "object", "properties": {}}

ViewKey = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]+$", max_length=128)]
"""Key of a view: its file's name without the suffix."""

BELONGS_TO: dict[str, Kind] = {
    "command": "backend",
    "request": "backend",
    "viewport": "frontend",
    "timeout_ms": "frontend",
    "result_schema": "frontend",
}
"""Fields that apply to only one kind."""


class Definition(BaseModel):
    """One tool in a file. Missing fields keep the built-in tool's values; otherwise the defaults are `once` and no
    parameters."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["function", "frontend", "action"] = "function"
    """Kind of the tool, if the file's suffix does not determine it: `frontend` or `action`. `function`, as in model
    providers' APIs, leaves it to the suffix."""

    # The names that model providers accept.
    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]+$", max_length=64)]
    """Name by which models call it and agents list it; case-insensitive. A name defined in two files is refused in
    both."""

    description: str | None = None
    """Description of the tool for the model."""

    after_call_hint: str | None = Field(default=None, validation_alias=AliasChoices("afterCallHint", "after_call_hint"))
    """Advice to the model on using a result; the hints of an agent's tools form a section of its system message. Also
    accepted as `after_call_hint`."""

    parameters: dict[str, Any] | None = None
    """JSON Schema (draft 2020-12) of the arguments, an object. Left out, a tool defined here takes none, and a built-in
    one keeps its schema. Arguments must also match a built-in tool's own schema."""

    effect: Effect | None = None
    """Effect of a call, which decides what happens if a crash left no result: `read` and `idempotent` run again; `once`
    does not, and a person or the model is notified. Left out, `once`; a built-in tool keeps its own."""

    approval: Approval | None = None
    """Whether a person must approve calls: `ask` always, `allow` never, `deny` refuses every call. Patterns for the
    tool in approvals.yaml take precedence. Left out, the risks in approvals.yaml decide."""

    answerers: AnswererRule | None = None
    """Users who may approve a call, or fill in the form. Those of a matching rule in approvals.yaml take precedence.
    Left out, approvals.yaml decides for approvals, and a form is for the requester."""

    command: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """Backend only: the program and its arguments. It runs in the sandbox, in the chat's workspace, with the call's
    arguments as JSON on standard input; standard output is the result. An argument that names a file of the tools
    folder becomes its absolute path. Left out, the definition redefines a built-in tool."""

    request: ApiRequest | None = None
    """Backend only, in place of `command`: the HTTP request that the tools service sends."""

    viewport: ViewKey | None = None
    """Frontend only: the view to show, by its file's name without suffix. Left out, the view with the tool's own
    name."""

    timeout_ms: Annotated[int, Field(ge=1, le=WAIT_MS_MAX)] | None = Field(default=None, validation_alias="timeoutMs")
    """Frontend only: how long the run waits for a person, in milliseconds, at most a day. Left out, 300,000."""

    result_schema: dict[str, Any] | None = Field(default=None, validation_alias="resultSchema")
    """Frontend only: JSON Schema (draft 2020-12) of a person's submission, at most 64 KiB. An answer that does not
    match is refused, and the run continues to wait. Left out, any JSON is accepted."""

    def find_kind(self, file_kind: Kind) -> Kind:
        return file_kind if self.type == "function" else self.type

    def make_answerers(self) -> common_pb2.Answerers | None:
        return self.answerers.make_answerers() if self.answerers is not None else None

    @field_validator("parameters")
    @classmethod
    def _check_schema(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is not None:
            check_schema(json.dumps(value))
            if value.get("type") != "object":
                raise ValueError('a JSON Schema of an object is expected: {"type": "object", …}')
        return value

    @field_validator("result_schema")
    @classmethod
    def _check_result_schema(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is not None:
            text = json.dumps(value, ensure_ascii=False)
            check_schema(text)
            if len(text.encode()) > RESULT_SCHEMA_BYTES_MAX:
                raise ValueError(f"longer than {RESULT_SCHEMA_BYTES_MAX} bytes")
        return value

    @model_validator(mode="after")
    def _check_kind(self, info: ValidationInfo) -> Definition:
        assert info.context is not None, "the file's kind is the validation's context"
        own = self.find_kind(info.context)
        for field, kind in BELONGS_TO.items():
            if getattr(self, field) is not None and own != kind:
                raise ValueError(f"{to_camel(field)}: only a {kind} tool has it, and this one is of the kind {own}")
        if self.request is not None:
            if self.command is not None:
                raise ValueError("request: a tool has a command or a request, not both")
            required = set((self.parameters or {}).get("required", ()))
            if missing := sorted(self.request.placeholders - required):
                raise ValueError(f"request.url: {missing} must be among the required parameters")
        if own == "frontend" and self.answerers is not None and self.answerers.count > 1:
            raise ValueError("answerers.count: a form has one answer; several must approve calls of other kinds alone")
        return self


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    tools: list[Definition]
    """The tools of the file, of the kind given by its suffix or their `type`."""


class BadDefinition(Exception):
    """A refused file; the text, for the log, names the field and the expectation."""


def parse_definitions(value: Any, kind: Kind) -> list[Definition]:
    """Return the definitions in a file's JSON; `kind` is that of its suffix. Raises BadDefinition."""
    try:
        return _File.model_validate(value, context=kind).tools
    except ValidationError as error:
        raise BadDefinition(format_problem(error, _File)) from error


def read_text(path: Path) -> str:
    """Return the text of a small file. Raises BadDefinition."""
    try:
        return read_regular_text(path, FILE_BYTES_MAX)
    except UnicodeDecodeError as error:
        raise BadDefinition(f"not UTF-8: {error.reason} at byte {error.start}") from error
    except OSError as error:
        raise BadDefinition(f"cannot be read: {error.strerror}") from error


def parse_json(text: str) -> Any:
    """Return the value in `text`. Raises BadDefinition."""
    try:
        return load_config_json(text)
    except ValueError as error:
        raise BadDefinition(str(error)) from error


def format_problem(error: ValidationError, model: type[BaseModel]) -> str:
    """Return the fields that pydantic refuses, with the rule that each violates, one per line."""
    lines: list[str] = []
    for detail in error.errors(include_url=False, include_input=False):
        field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in detail["loc"]).lstrip(".")
        lines.append(f"{field or 'the file'}: {describe_rule(detail, model).splitlines()[0]}")
    return "\n".join(lines)
