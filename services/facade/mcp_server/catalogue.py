"""What clients are offered: agents as tools, their questions as prompts."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from headrace.v1 import agent_pb2
from services.facade.mcp_server.protocol import BAD_PARAMS, McpError

INPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "message": {"type": "string", "minLength": 1, "description": "What to ask or have done"},
        "chatId": {"type": "string", "description": "Go on with a chat: the chatId of an earlier result"},
    },
    "required": ["message"],
    "additionalProperties": False,
}
OUTPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "answer": {"type": "string", "description": "The answer's text"},
        "chatId": {"type": "string", "description": "The chat, to go on with"},
        "runId": {"type": "string"},
        "finishReason": {"type": "string", "description": "stop, or what cut the answer"},
        "output": {"description": "The answer as JSON, where the agent gives one in a form"},
    },
    "required": ["answer", "chatId", "runId", "finishReason"],
}


def build_tools(agents: Sequence[agent_pb2.Agent], *, may_be_tasks: bool) -> list[dict[str, Any]]:
    """Return the tools; where their calls `may_be_tasks`, as 2025-11-25 has them, they say so."""
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


def read_query(agent: agent_pb2.Agent, arguments: Any) -> agent_pb2.QueryRequest:
    """Return the query of a call; McpError names the argument and the rule."""
    given = arguments if isinstance(arguments, dict) else {}
    message, chat_id = given.get("message"), given.get("chatId")
    if not isinstance(message, str) or not message:
        raise McpError(BAD_PARAMS, "message: must be text that is not empty")
    if unknown := given.keys() - INPUT["properties"].keys():
        raise McpError(BAD_PARAMS, f"{min(unknown)[:64]}: is no argument of this tool")
    if chat_id is not None and not _is_uuid(chat_id):
        raise McpError(BAD_PARAMS, "chatId: must be the chatId of an earlier result")
    return agent_pb2.QueryRequest(agent_key=agent.key, message=message, chat_id=chat_id, when_busy="reject")


def _is_uuid(value: Any) -> bool:
    try:
        return str(uuid.UUID(value)) == value.lower()
    except (ValueError, AttributeError, TypeError):
        return False


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
