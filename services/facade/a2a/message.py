"""Parses A2A's Message into a query, or into the answer to a waiting task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import orjson

from headrace.errors import InvalidRequest
from headrace.v1 import agent_pb2
from services.facade.a2a.protocol import BAD_PARAMS, NO_CONTENT_TYPE, NO_TASK, A2aError
from services.facade.a2a.push_configs import PushConfig, parse_push_config
from services.facade.adapters.attachments.attachment import Attachment, check_number, decode_base64, make_attachment
from services.facade.adapters.gate_answers import APPROVAL, Answer, GateRef, make_answer, parse_text
from services.runtime.auth import identity
from services.runtime.auth.access import find_keyed_chat
from services.runtime.rpc import field_rules

_DONE, _REFUSED = {"done": True}, {"cancelled": True}
_VISITED = {"done": _DONE, "yes": _DONE, "no": _REFUSED, "reject": _REFUSED, "cancel": _REFUSED}
"""Replies accepted after the user was sent to a URL."""

_WORDS = {"approve": True, "approved": True, "yes": True, "reject": False, "rejected": False, "no": False}


@dataclass(frozen=True, slots=True)
class SentMessage:
    message_id: str
    text: str
    data: list[Any]
    """Values of the data parts."""

    context_id: str
    task_id: str
    returns_immediately: bool
    push: PushConfig | None = None
    attachments: Sequence[Attachment] = ()
    """Files to upload; they are not in the chat yet."""


def parse_message(params: dict[str, Any]) -> SentMessage:
    """Parse a SendMessageRequest; A2aError names the field and the rule."""
    message, configuration = params.get("message"), params.get("configuration") or {}
    if not isinstance(message, dict) or not isinstance(configuration, dict):
        raise A2aError(BAD_PARAMS, "message: must be an object")
    push = configuration.get("taskPushNotificationConfig")
    if message.get("role") != "ROLE_USER":
        raise A2aError(BAD_PARAMS, "message.role: must be ROLE_USER")
    texts, data, attachments = _read_parts(message.get("parts"))
    ids = {name: message.get(name) or "" for name in ("messageId", "contextId", "taskId")}
    if not isinstance(ids["messageId"], str) or not 0 < len(ids["messageId"].encode()) <= 128:
        raise A2aError(BAD_PARAMS, "message.messageId: must have 1 to 128 bytes")
    if ids["contextId"] and not is_uuid(ids["contextId"]):
        raise A2aError(BAD_PARAMS, "message.contextId: must be one that this server has given")
    if ids["taskId"] and not is_uuid(ids["taskId"]):
        raise A2aError(NO_TASK, "message.taskId: no task has this id")
    if attachments and ids["taskId"]:
        raise A2aError(BAD_PARAMS, f"{attachments[0].field}: files come with a message that begins a task")
    text = "\n".join(texts)
    if not ids["taskId"]:
        text = "\n".join([*texts, *(orjson.dumps(value).decode() for value in data)])
    if not text and not data:
        raise A2aError(BAD_PARAMS, "message.parts: must have text or data")
    returns = configuration.get("returnImmediately") is True
    config = parse_push_config(push, "configuration.taskPushNotificationConfig") if push else None
    context_id, task_id = ids["contextId"].lower(), ids["taskId"].lower()
    return SentMessage(ids["messageId"], text, data, context_id, task_id, returns, config, attachments)


def _read_parts(parts: Any) -> tuple[list[str], list[Any], list[Attachment]]:
    """Return the texts (each file appears as its name in brackets), the data values, and the files."""
    if not isinstance(parts, list) or not parts:
        raise A2aError(BAD_PARAMS, "message.parts: must be a list that is not empty")
    texts: list[str] = []
    data: list[Any] = []
    attachments: list[Attachment] = []
    for at, part in enumerate(parts):
        name = f"message.parts[{at}]"
        if not isinstance(part, dict):
            raise A2aError(BAD_PARAMS, f"{name}: must be an object")
        if isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif isinstance(part.get("raw"), str):
            attachments.append(_read_file(part, name))
            texts.append(f"[{attachments[-1].name}]")
        elif part.get("url") is not None:
            raise A2aError(
                NO_CONTENT_TYPE, f"{name}.url: this server fetches nothing that a caller names; send it as raw"
            )
        elif "data" in part:  # null is a value, or what programs write for a field that is not there
            data.append(part["data"])
        else:
            raise A2aError(NO_CONTENT_TYPE, f"{name}: must be text, data or raw")
    try:
        check_number(attachments)
    except InvalidRequest as error:
        raise A2aError(BAD_PARAMS, error.message) from error
    return texts, data, attachments


def _read_file(part: dict[str, Any], name: str) -> Attachment:
    filename, media_type = (
        value if isinstance(value := part.get(key), str) else "" for key in ("filename", "mediaType")
    )
    try:
        data = decode_base64(part["raw"], f"{name}.raw")
        return make_attachment(name, filename, media_type, data)
    except InvalidRequest as error:
        raise A2aError(BAD_PARAMS, error.message) from error


def is_uuid(value: Any) -> bool:
    return isinstance(value, str) and field_rules.is_uuid(value.lower())


def find_context(agent_key: str, sent: SentMessage) -> str:
    """Return the message's context id, or a chat id derived from the message, so that a retry finds the same chat.

    The derived id covers the text too: some clients reuse one message id for different messages.
    """
    if sent.context_id:
        return sent.context_id
    return find_keyed_chat(identity.require_identity(), _name_context(agent_key, sent))


def _name_context(agent_key: str, sent: SentMessage) -> str:
    source = "\0".join((agent_key, sent.message_id, sent.text))
    return f"a2a/{sha256(source.encode()).hexdigest()}"


def make_query(agent_key: str, sent: SentMessage) -> agent_pb2.QueryRequest:
    name = _name_context(agent_key, sent)
    is_named = sent.context_id == find_keyed_chat(identity.require_identity(), name)
    return agent_pb2.QueryRequest(
        agent_key=agent_key,
        chat_id=sent.context_id or None,
        chat_key=name if is_named else None,
        request_id=sent.message_id,
        message=sent.text,
        from_program=True,
    )


def answer_gate(run_id: str, gates: dict[str, agent_pb2.GateOpen], sent: SentMessage) -> Answer:
    """Return the answer to the gate named by `gateId` in the message's data, or else to the first open gate."""
    given = sent.data[0] if sent.data else None
    gate_id = given.get("gateId") if isinstance(given, dict) else None
    gate = gates.get(gate_id) if isinstance(gate_id, str) else next(iter(gates.values()))
    if gate is None:
        raise A2aError(BAD_PARAMS, "message.parts: gateId must be that of an open gate of the task")
    if isinstance(given, dict):
        given = {name: value for name, value in given.items() if name != "gateId"}
    is_approval = gate.kind == APPROVAL
    if given is None:
        given = _read_text(gate, sent.text)
    if is_approval and given is None:
        raise A2aError(BAD_PARAMS, "message.parts: must be approve or reject, or data with a decision")
    return make_answer(GateRef(run_id, 0, gate.gate_id, is_approval), given, "message.parts", is_refused=False)


def _read_text(gate: agent_pb2.GateOpen, text: str) -> Any:
    """Return the text as a gate answer, or None if an approval gate cannot interpret it."""
    word = text.strip().lower()
    if gate.kind == APPROVAL:
        return _WORDS.get(word)
    if gate.ask.HasField("url") and word in _VISITED:
        return _VISITED[word]
    return parse_text(text)
