"""Pictures and sounds of a tool's result, for models that take them."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.v1 import llm_pb2, tools_pb2
from services.orchestrator.peers.model_info import list_capabilities
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.peers.workspace_files import read_file
from services.orchestrator.run.scope import Scope
from services.runtime.tokens.image_size import image_type
from services.runtime.tokens.sound_type import sound_type

PARTS_MAX = 8
BYTES_MAX = 10 * 1024 * 1024
"""Bytes that a result shows, which the chat keeps as long as it lives."""


async def load_media(scope: Scope, peers: Peers, outcome: tools_pb2.ToolOutcome) -> Sequence[llm_pb2.ContentPart]:
    """Load what the scope's models are shown beside the result; nothing that one of them is not known to take."""
    if not outcome.shown_paths:
        return []
    # Not tried where nothing is known: the result's text names the file, and a refusal would end the run.
    abilities = frozenset[str].intersection(*map(frozenset[str], await list_capabilities(peers, scope.agent)))
    parts: list[llm_pb2.ContentPart] = []
    room = BYTES_MAX
    for path in outcome.shown_paths[:PARTS_MAX] if abilities & {"vision", "audio"} else ():
        data = await read_file(peers, scope.run.chat_id, path, room)
        if data is not None and (part := _make_part(data, abilities)):
            room -= len(data)
            parts.append(part)
    return parts


def _make_part(data: bytes, abilities: frozenset[str]) -> llm_pb2.ContentPart | None:
    if "vision" in abilities and (mime_type := image_type(data)):
        return llm_pb2.ContentPart(image=llm_pb2.ImagePart(data=data, mime_type=mime_type))
    if "audio" in abilities and (mime_type := sound_type(data)):
        return llm_pb2.ContentPart(audio=llm_pb2.AudioPart(data=data, mime_type=mime_type))
    return None
