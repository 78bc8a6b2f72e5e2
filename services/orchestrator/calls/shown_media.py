"""Pictures and sounds of a tool's result, for models that take them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from headrace.v1 import llm_pb2, tools_pb2
from services.orchestrator.peers.model_info import list_capabilities
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.peers.workspace_files import read_file
from services.orchestrator.run.scope import Scope
from services.runtime.tokens.image_size import image_type
from services.runtime.tokens.sound_type import sound_type

ABILITIES = {"image": "vision", "audio": "audio", "file": "files"}
"""What a model must be able to do for a part of each kind."""

PARTS_MAX = 8
BYTES_MAX = 10 * 1024 * 1024
"""Bytes that a result shows, which the chat keeps as long as it lives."""


async def load_media(scope: Scope, peers: Peers, outcome: tools_pb2.ToolOutcome) -> Sequence[llm_pb2.ContentPart]:
    """Load what the scope's models are shown beside the result; nothing that one of them is not known to take."""
    if not outcome.shown_paths:
        return []
    abilities = await _find_abilities(scope, peers)
    parts: list[llm_pb2.ContentPart] = []
    room = BYTES_MAX
    for path in outcome.shown_paths[:PARTS_MAX] if abilities & {"vision", "audio"} else ():
        data = await read_file(peers, scope.run.chat_id, path, room)
        if data is not None and (part := _make_part(data, abilities)):
            room -= len(data)
            parts.append(part)
    return parts


async def select_media(
    scope: Scope, peers: Peers, parts: Sequence[llm_pb2.ContentPart]
) -> Sequence[llm_pb2.ContentPart]:
    """Select of what the chat keeps what a result may show again; nothing that one of the models may not take."""
    abilities = await _find_abilities(scope, peers) if parts else frozenset[str]()
    shown = [part for part in parts if ABILITIES[part.WhichOneof("part") or ""] in abilities][:PARTS_MAX]
    sizes = accumulate(part.ByteSize() for part in shown)
    return [part for part, size in zip(shown, sizes, strict=True) if size <= BYTES_MAX]


async def _find_abilities(scope: Scope, peers: Peers) -> frozenset[str]:
    """Find what all models of the scope are known to take: a refusal would end the run, and texts name the files."""
    return frozenset[str].intersection(*map(frozenset[str], await list_capabilities(peers, scope.agent)))


def _make_part(data: bytes, abilities: frozenset[str]) -> llm_pb2.ContentPart | None:
    if "vision" in abilities and (mime_type := image_type(data)):
        return llm_pb2.ContentPart(image=llm_pb2.ImagePart(data=data, mime_type=mime_type))
    if "audio" in abilities and (mime_type := sound_type(data)):
        return llm_pb2.ContentPart(audio=llm_pb2.AudioPart(data=data, mime_type=mime_type))
    return None
