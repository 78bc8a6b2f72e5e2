"""The offer to MCP clients: agents as tools, and their suggested questions as prompts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.v1 import agent_pb2
from services.facade.adapters.attachments.attachment import (
    ATTACHMENTS_MAX,
    Attachment,
    check_number,
    decode_base64,
    make_attachment,
)
from services.facade.mcp_server.protocol import BAD_PARAMS, McpError
from services.runtime.rpc.field_rules import is_uuid

INPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "message": {"type": "string", "minLength": 1, "description": "What to ask or have done"},
        "chatId": {"type": "string", "description": "Go on with a chat: the chatId of an earlier result"},
        "files": {
            "type": "array",
            "maxItems": ATTACHMENTS_MAX,
            "description": "Files that the message is about, each as text or as bytes in base64 (blob)",
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "minLength": 1, "maxLength": 255},
                    "mimeType": {"type": "string"},
                    "text": {"type": "string"},
                    "blob": {"type": "string", "contentEncoding": "base64"},
                },
                "required": ["name"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["message"],
    "additionalProperties": False,
}
OUTPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "answer": {"type": "string", "description": "The answer's text"},
        "chatId": {"type": "string", "description": "The chat to continue"},
        "runId": {"type": "string"},
        "finishReason": {"type": "string", "description": "stop, or what cut the answer"},
        "output": {"description": "The answer as JSON, where the agent gives one in a form"},
    },
    "required": ["answer", "chatId", "runId", "finishReason"],
}


def build_tools(agents: Sequence[agent_pb2.Agent], *, may_be_tasks: bool) -> list[dict[str, Any]]:
    """Return the tools; with `may_be_tasks`, declare that calls may run as tasks (2025-11-25)."""
    execution = {"execution": {"taskSupport": "optional"}} if may_be_tasks else {}
    return [
        {
            "name": agent.key,
            "title": agent.name,
            "description": agent.description or agent.name,
            "inputSchema": INPUT,
            "outputSchema": OUTPUT,
            "annotations": {"title": agent.name, "openWorldHint": True},
        }
        | execution
        for agent in agents
    ]


def read_query(agent: agent_pb2.Agent, arguments: Any) -> tuple[agent_pb2.QueryRequest, list[Attachment]]:
    """Return the query of a tool call, and its files to upload.

    Raises:
        McpError: Names the argument and the rule.
        InvalidRequest: Names a file that is not acceptable.
    """
    given = _drop_nulls(arguments) if isinstance(arguments, dict) else {}
    message, chat_id = given.get("message"), given.get("chatId")
    if not isinstance(message, str) or not message:
        raise McpError(BAD_PARAMS, "message: must be text that is not empty")
    if unknown := given.keys() - INPUT["properties"].keys():
        raise McpError(BAD_PARAMS, f"{min(unknown)[:64]}: is not an argument of this tool")
    if chat_id == "":  # what models write, too, for what they leave out
        chat_id = None
    if chat_id is not None and not (isinstance(chat_id, str) and is_uuid(chat_id.lower())):
        raise McpError(BAD_PARAMS, "chatId: must be the chatId of an earlier result")
    files = given.get("files", [])
    if not isinstance(files, list) or not all(isinstance(file, dict) for file in files):
        raise McpError(BAD_PARAMS, "files: must be a list of objects")
    attachments = [_read_file(_drop_nulls(file), f"files[{at}]") for at, file in enumerate(files)]
    check_number(attachments)
    text = "\n".join([message, *(f"[{attachment.name}]" for attachment in attachments)])
    query = agent_pb2.QueryRequest(
        agent_key=agent.key, message=text, chat_id=chat_id, when_busy="reject", from_program=True
    )
    return query, attachments


def _drop_nulls(given: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that have a value: models write null for what they leave out."""
    return {name: value for name, value in given.items() if value is not None}


def _read_file(file: dict[str, Any], field: str) -> Attachment:
    known: dict[str, Any] = INPUT["properties"]["files"]["items"]["properties"]
    if unknown := file.keys() - known.keys():
        raise McpError(BAD_PARAMS, f"{field}.{min(unknown)[:64]}: is not a field of a file")
    if wrong := next((name for name, value in file.items() if not isinstance(value, str)), None):
        raise McpError(BAD_PARAMS, f"{field}.{wrong}: must be text")
    if not file.get("name"):
        raise McpError(BAD_PARAMS, f"{field}.name: must be a file name")
    if {"text", "blob"} <= file.keys():
        file = {name: value for name, value in file.items() if value or name not in ("text", "blob")}
    if ("text" in file) == ("blob" in file):
        raise McpError(BAD_PARAMS, f"{field}: must have text or blob")
    data = file["text"].encode() if "text" in file else decode_base64(file["blob"], f"{field}.blob")
    return make_attachment(field, file["name"], file.get("mimeType", ""), data)


def build_prompts(agents: Sequence[agent_pb2.Agent]) -> list[dict[str, Any]]:
    return [
        {"name": f"{agent.key}.{at}", "title": question, "description": f"A question for {agent.name}"}
        for agent in agents
        for at, question in enumerate(agent.questions, start=1)
    ]


def get_prompt(agents: Sequence[agent_pb2.Agent], name: Any) -> dict[str, Any]:
    for agent in agents:
        for at, question in enumerate(agent.questions, start=1):
            if name == f"{agent.key}.{at}":
                content = {"type": "text", "text": question}
                return {"description": agent.description, "messages": [{"role": "user", "content": content}]}
    raise McpError(BAD_PARAMS, "name: must be that of a prompt in prompts/list")
