"""What a server asks a person, as the run's gates have it."""

from __future__ import annotations

import hashlib
import json
import re

import mcp_types as types

from headrace.v1 import common_pb2, tools_pb2
from services.tools.toolkit.arguments import check_schema

MESSAGE_CHARS_MAX, SCHEMA_CHARS_MAX, URL_CHARS_MAX = 4_000, 32_000, 2_000

_URL = re.compile(r"https://[^\s@]+|http://(127\.0\.0\.1|localhost|\[::1\])([:/?][^\s@]*)?")
"""Where people are sent: nothing that can be read on its way, and no script. Without a name and password before the
host, which would hide it."""

DISMISSED = types.ElicitResult(action="cancel")

NO_PERSON = types.ErrorData(code=types.INVALID_REQUEST, message="nobody can be asked in this call")


def make_need(server: str, asked: str, params: types.ElicitRequestParams) -> common_pb2.InputNeed | types.ErrorData:
    """Make what a person is asked; `asked` tells it from all else that the call asks. An error goes to the server."""
    message = params.message[:MESSAGE_CHARS_MAX]
    if isinstance(params, types.ElicitRequestURLParams):
        if len(params.url) > URL_CHARS_MAX or not _URL.fullmatch(params.url):
            return _refuse("url: an https address of at most 2,000 characters is expected")
        need = common_pb2.InputNeed(server=server, message=message, url=params.url)
    else:
        schema = json.dumps(params.requested_schema, ensure_ascii=False)
        try:
            check_schema(schema)
        except ValueError as error:
            return _refuse(f"requestedSchema: {str(error).splitlines()[0][:200]}")
        if len(schema) > SCHEMA_CHARS_MAX or params.requested_schema.get("type") != "object":
            return _refuse(f"requestedSchema: an object's of at most {SCHEMA_CHARS_MAX:,} characters is expected")
        need = common_pb2.InputNeed(server=server, message=message, schema=schema)
    # The same words have the same name, and others never do: an answer that is known is that to this question.
    digest = hashlib.sha256(need.SerializeToString(deterministic=True)).hexdigest()[:16]
    need.name = f"{asked}-{digest}"
    return need


def make_response(answer: tools_pb2.InputAnswer) -> types.ElicitResult:
    """Return the person's answer as its server has it."""
    if answer.action != "accept":
        return types.ElicitResult(action="decline" if answer.action == "decline" else "cancel")
    content = json.loads(answer.content) if answer.HasField("content") else None
    return types.ElicitResult(action="accept", content=content)


def _refuse(message: str) -> types.ErrorData:
    return types.ErrorData(code=types.INVALID_PARAMS, message=message)
