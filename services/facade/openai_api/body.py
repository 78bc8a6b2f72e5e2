"""Parts common to the request bodies of both APIs.

Unknown fields are ignored because OpenAI adds some every month. An optional field may be null: many programs send all
fields of a message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec
import orjson

from headrace.errors import InvalidRequest
from headrace.v1 import agent_pb2, common_pb2
from services.facade.requests.json_body import BODY
from services.runtime.rpc.field_rules import check_json

T = TypeVar("T")

ANY_OBJECT = '{"type":"object"}'

NO_SCHEMA = (b"", b"null")

TEXT_PARTS = frozenset({"text", "input_text", "output_text", "refusal"})

THOUGHT_PARTS = frozenset({"thinking", "redacted_thinking", "reasoning"})
"""Parts with the reasoning of another program's model, which no other model may see."""


class ImageUrl(msgspec.Struct):
    url: str
    detail: str | None = None


class Sound(msgspec.Struct):
    data: str = ""
    format: str = ""


class File(msgspec.Struct, kw_only=True):
    file_data: str | None = None
    file_id: str | None = None
    file_url: str | None = None
    filename: str | None = None


class Part(File, kw_only=True):
    """In a response, the file's fields are in the part; in a chat completion, they are in `file`."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: str | ImageUrl | None = None
    detail: str | None = None
    input_audio: Sound | None = None
    file: File | None = None


class Function(msgspec.Struct):
    name: str = ""
    description: str | None = None
    parameters: msgspec.Raw = msgspec.Raw()
    """The JSON schema as sent."""


class _JsonSchema(msgspec.Struct):
    name: str | None = None
    description: str | None = None
    schema: msgspec.Raw = msgspec.Raw()
    strict: bool | None = None


class ResponseFormat(_JsonSchema):
    """In a chat completion, the schema is in `json_schema`; in a response, it is in this object."""

    type: str | None = None
    json_schema: _JsonSchema | None = None


class AllowedTools(msgspec.Struct):
    mode: str | None = None
    tools: list[Any] | None = None


class ToolChoice(msgspec.Struct):
    """In a chat completion, the parts are nested objects; in a response, they are in this object."""

    type: str
    name: str | None = None
    function: Function | None = None
    mode: str | None = None
    tools: list[Any] | None = None
    allowed_tools: AllowedTools | None = None


def parse_body(body: bytes, kind: type[T]) -> T:
    """Parse `body`; InvalidRequest names the field and the rule."""
    check_json(body.decode(errors="replace"), BODY)  # msgspec limits the depth only by the stack
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        # The message contains only types and paths.
        rule, _, path = str(error).partition(" - at `$")
        raise InvalidRequest.of(path.strip("`.") or BODY, f"does not match the API: {rule}") from None
    except msgspec.DecodeError as error:
        raise InvalidRequest.of(BODY, f"must be valid JSON in UTF-8: {error}") from None


def read_arguments(arguments: msgspec.Raw, plain: str | None) -> str:
    """Return a call's arguments as JSON text. Some programs send the JSON itself; `plain` is a custom tool's input."""
    if plain is not None:
        return orjson.dumps({"input": plain}).decode()
    return read_json_text(arguments)


def read_json_text(value: msgspec.Raw) -> str:
    """Return a text, or the JSON that is in its place; empty if it is absent or null."""
    text = bytes(value).decode()
    return msgspec.json.decode(text, type=str) if text.startswith('"') else "" if text == "null" else text


def read_output_format(given: ResponseFormat | None, name: str) -> common_pb2.OutputFormat | None:
    """Return the answer's output format; None for free text. A JSON schema format without a schema raises
    InvalidRequest.
    """
    if given is None or given.type in (None, "text"):
        return None
    if given.type not in ("json_schema", "json_object"):
        raise InvalidRequest.of(f"{name}.type", "must be text, json_object or json_schema")
    form = given.json_schema or given
    if given.type == "json_object" and bytes(form.schema) in (*NO_SCHEMA, b"{}"):  # some programs send a schema with it
        return common_pb2.OutputFormat(schema=ANY_OBJECT)
    if bytes(form.schema) in NO_SCHEMA:
        raise InvalidRequest.of(name, "must have a schema")
    return common_pb2.OutputFormat(
        schema=bytes(form.schema).decode(), name=form.name, description=form.description, strict=form.strict
    )


def choose_tools(
    choice: str | ToolChoice | None, tools: Mapping[str, agent_pb2.ClientTool]
) -> tuple[str, Mapping[str, agent_pb2.ClientTool]]:
    """Return the query's toolChoice and the offered subset of the caller's tools, by their fields.

    `none` affects only the caller's tools: the agent may still use its own.

    Raises:
        InvalidRequest: The choice names no function of the request.
    """
    if choice is None or choice == "auto":
        return "", tools
    if choice == "none":
        return "", {}
    if choice == "required":
        return "required", tools
    if isinstance(choice, str):
        raise InvalidRequest.of("tool_choice", "must be none, auto, required, or an object that names a function")
    if choice.type == "allowed_tools":
        allowed = choice.allowed_tools or AllowedTools(choice.mode, choice.tools)
        names = {_read_tool_name(tool) for tool in allowed.tools or ()}
        mode = "required" if allowed.mode == "required" else "auto"
        return choose_tools(mode, {field: tool for field, tool in tools.items() if tool.name in names})
    name = (choice.function.name if choice.function is not None else choice.name) or ""
    if choice.type != "function" or name not in {tool.name for tool in tools.values()}:
        raise InvalidRequest.of("tool_choice", f"must name a function of tools, not {name[:64]!r}")
    return name, tools


def _read_tool_name(tool: Any) -> str:
    if not isinstance(tool, dict):
        return ""
    function = tool.get("function")
    return str((function if isinstance(function, dict) else tool).get("name", ""))


def make_client_tools(tools: Iterable[tuple[str, Function]]) -> dict[str, agent_pb2.ClientTool]:
    """Convert functions, each with its tool's type, to client tools, by their fields in the request.

    Tools of other types are left out: the agent has its own, and some programs offer theirs to every server.

    Raises:
        InvalidRequest: A function has no name.
    """
    made = dict[str, agent_pb2.ClientTool]()
    for at, (kind, function) in enumerate(tools):
        if kind != "function":
            continue
        if not function.name:
            raise InvalidRequest.of(f"tools[{at}]", "must be a function with a name")
        tool = agent_pb2.ClientTool(name=function.name, description=function.description or "")
        if (schema := bytes(function.parameters)) not in NO_SCHEMA:
            tool.parameters = schema.decode()
        made[f"tools[{at}]"] = tool
    return made
