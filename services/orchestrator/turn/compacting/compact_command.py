"""A run that only compacts its chat: its message is /compact, perhaps with a hint."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from services.orchestrator.turn.conversation import Conversation

COMMAND = "/compact"

STAGE = "compact"

ENDED = ("compaction_complete", "compaction_fallback", "compaction_fail")


def is_compact_command(message: str) -> bool:
    """Return whether the message is this command, which memory shows to no model."""
    return message.split(maxsplit=1)[:1] == [COMMAND]


async def run_compaction(talk: Conversation) -> str:
    if any(event.WhichOneof("payload") in ENDED for event in talk.run.recording.events):
        return "stop"  # an earlier owner has done it
    _, _, hint = talk.run.query.message.strip().partition(COMMAND)
    await talk.context.compact(hint.strip())
    return "stop"
