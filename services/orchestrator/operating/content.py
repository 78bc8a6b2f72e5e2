"""Events without what was said: ids, names, numbers and states stay, every other text goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from google.protobuf.descriptor import FieldDescriptor
    from google.protobuf.message import Message

_TEXTS_KEPT = frozenset(
    {
        *("agent_key", "kind", "state", "status", "stage", "stream", "decision", "risk", "role", "trigger", "code"),
        *("tool_name", "tool_type", "action_name", "finish_reason", "mime_type", "viewport_key"),
        *("answered_by", "credential", "any_of"),
    }
)
"""Fields whose texts are words of ours, of the configuration or of the directory. What is not known here goes: a new
field is taken for content."""


def strip_content(message: Message) -> None:
    """Clear the texts of `message` and of those in it."""
    for field, value in message.ListFields():
        if field.type in (field.TYPE_STRING, field.TYPE_BYTES):
            if not _is_kept(field):
                message.ClearField(field.name)
        elif field.message_type is not None:
            if field.message_type.GetOptions().map_entry:
                message.ClearField(field.name)
            else:
                for inner in _list_values(field, value):
                    strip_content(inner)


def _is_kept(field: FieldDescriptor) -> bool:
    return field.name.endswith("_id") or field.name in _TEXTS_KEPT


def _list_values(field: FieldDescriptor, value: Any) -> list[Message]:
    return list(value) if field.is_repeated else [value]
