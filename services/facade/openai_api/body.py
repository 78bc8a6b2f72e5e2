"""The parts that the bodies of both APIs share; unknown fields are ignored, since OpenAI adds some every month."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from headrace.errors import InvalidRequest
from headrace.v1 import agent_pb2
from services.facade.requests.json_body import BODY
from services.runtime.rpc.field_rules import check_json

T = TypeVar("T")

TEXT_PARTS = frozenset({"text", "input_text", "output_text", "refusal"})


class Part(msgspec.Struct):
    type: str
    text: str = ""
    refusal: str = ""


class Function(msgspec.Struct):
    name: str = ""
    description: str | None = None
    parameters: msgspec.Raw = msgspec.Raw()
    """The raw JSON schema, kept as it was written."""


class ResponseFormat(msgspec.Struct):
    type: str = "text"


def parse_body(body: bytes, kind: type[T]) -> T:
    """Parse `body`; InvalidRequest names the broken rule and its place."""
    check_json(body.decode(errors="replace"), BODY)  # msgspec has no limit of depth but the stack's
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        # The text is about types and paths alone.
        rule, _, path = str(error).partition(" - at `$")
        raise InvalidRequest.of(path.strip("`.") or BODY, f"is not as the API has it: {rule}") from None
    except msgspec.DecodeError as error:
        raise InvalidRequest.of(BODY, f"must be valid JSON in UTF-8: {error}") from None


def read_text(content: str | list[Part] | None, name: str) -> str:
    """Return a message's text; pictures, files and sound raise InvalidRequest."""
    if content is None or isinstance(content, str):
        return content or ""
    for part in content:
        if part.type not in TEXT_PARTS:
            raise InvalidRequest.of(name, f"must be text, not {part.type[:32]!r}; upload files by POST /api/upload")
    return "".join(part.text or part.refusal for part in content)


def check_format(form: ResponseFormat | None, name: str) -> None:
    """Refuse output formats: an agent decides its answer's form."""
    if form is not None and form.type != "text":
        raise InvalidRequest.of(name, "must be text: the agent decides the form of its answer")


def make_client_tool(function: Function, name: str) -> agent_pb2.ClientTool:
    """Convert a function; one without a name raises InvalidRequest."""
    if not function.name:
        raise InvalidRequest.of(name, "must be a function with a name")
    tool = agent_pb2.ClientTool(name=function.name, description=function.description or "")
    if (schema := bytes(function.parameters)) not in (b"", b"null"):
        tool.parameters = schema.decode()
    return tool
