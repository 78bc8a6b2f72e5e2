"""All that a context holds as text, for readers that look for what it mentions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.v1 import llm_pb2
    from services.memory.context.context_source import ContextSource


def list_texts(source: ContextSource) -> list[llm_pb2.Message]:
    """List the messages since the last compaction, after its summary, whole but for images, sounds and files."""
    summary = [] if source.compacted is None else [source.compacted.group]
    groups = [*summary, *source.read_all()]
    messages = [said.message for group in groups for said in group.list_messages()]
    for message in messages:
        texts = [part for part in message.content if part.text]
        del message.content[:]
        message.content.extend(texts)
    return messages
