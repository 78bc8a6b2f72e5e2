"""Results of calls: those the orchestrator creates itself, and media for models."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import orjson

from headrace.v1 import llm_pb2, tools_pb2
from services.orchestrator.peers.models import list_capabilities
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.peers.workspace_files import read_file
from services.orchestrator.run.scope import Scope
from services.runtime.tokens.image_size import image_type, sound_type

RESULT_CHARS_MAX = 30_000

_NOT_EXECUTED = '{"ok":false,"executed":false,'


def make_success(**fields: Any) -> tools_pb2.ToolOutcome:
    return tools_pb2.ToolOutcome(ok=True, result=orjson.dumps({"ok": True, **fields}).decode())


def make_failure(error: str, message: str = "", **fields: Any) -> tools_pb2.ToolOutcome:
    body = {"ok": False, "error": error} | ({"message": message} if message else {}) | fields
    return tools_pb2.ToolOutcome(ok=False, result=orjson.dumps(body).decode())


def make_refusal(error: str, **fields: Any) -> tools_pb2.ToolOutcome:
    body = {"ok": False, "executed": False, "error": error, **fields}
    return tools_pb2.ToolOutcome(ok=False, result=orjson.dumps(body).decode())


def is_refusal(text: str) -> bool:
    """Return whether the result belongs to a call that was not charged to the budget."""
    if not text.startswith(_NOT_EXECUTED):
        return False
    try:
        return orjson.loads(text.partition("\n")[0]).get("error") not in ("denied", "rejected")
    except ValueError:
        return False


def is_rejection(text: str) -> bool:
    """Return whether a person rejected the call."""
    return text.startswith(f'{_NOT_EXECUTED}"error":"rejected"')


def add_notes(text: str, *notes: str) -> str:
    """Append notes for the model to the result, each as its own paragraph."""
    return "\n\n".join([text, *(f"[{note}]" for note in notes if note)])


def truncate_result(text: str) -> str:
    if len(text) <= RESULT_CHARS_MAX:
        return text
    note = f"\n[… cut here: {len(text)} characters in all …]"
    return text[: RESULT_CHARS_MAX - len(note)] + note


class _Kind(NamedTuple):
    ability: str
    """Capability that a model needs."""
    name: str


KINDS = {"image": _Kind("vision", "images"), "audio": _Kind("audio", "audio"), "file": _Kind("files", "files")}
"""By the field of a content part."""

PARTS_MAX = 8
BYTES_MAX = 10 * 1024 * 1024
"""Maximum bytes of media per result; the chat keeps them for its lifetime."""


async def load_media(scope: Scope, peers: Peers, outcome: tools_pb2.ToolOutcome) -> Sequence[llm_pb2.ContentPart]:
    """Load the media that the scope's models see along with the result, limited to kinds that all of them accept."""
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
) -> tuple[Sequence[llm_pb2.ContentPart], str]:
    """Return the stored parts that a result may show again, and a note on those it omits."""
    return divide_media(parts, await _find_abilities(scope, peers)) if parts else ([], "")


def divide_media(
    parts: Sequence[llm_pb2.ContentPart], abilities: frozenset[str]
) -> tuple[Sequence[llm_pb2.ContentPart], str]:
    """Return the parts that a result may show to models with these abilities, and a note on the rest; empty if none."""
    seen = [part for part in parts if _get_kind(part).ability in abilities]
    sizes = accumulate(part.ByteSize() for part in seen)
    shown = [part for part, size in zip(seen[:PARTS_MAX], sizes, strict=False) if size <= BYTES_MAX]
    notes: list[str] = []
    if unseen := [part for part in parts if _get_kind(part).ability not in abilities]:
        names = ", ".join(sorted({_get_kind(part).name for part in unseen}))
        notes.append(f"[{len(unseen)} not shown: the model is not known to take {names}]")
    if len(shown) < len(seen):
        limit = f"{PARTS_MAX}, of {BYTES_MAX >> 20} MiB together"
        notes.append(f"[{len(seen) - len(shown)} not shown: a result shows at most {limit}]")
    return shown, "\n".join(notes)


def _get_kind(part: llm_pb2.ContentPart) -> _Kind:
    return KINDS[part.WhichOneof("part") or ""]


async def _find_abilities(scope: Scope, peers: Peers) -> frozenset[str]:
    """Return the abilities that all models of the scope are known to have. Others are left out, because a refusal would
    end the run; the result's text names the files."""
    return frozenset[str].intersection(*map(frozenset[str], await list_capabilities(peers, scope.agent)))


def _make_part(data: bytes, abilities: frozenset[str]) -> llm_pb2.ContentPart | None:
    if "vision" in abilities and (mime_type := image_type(data)):
        return llm_pb2.ContentPart(image=llm_pb2.ImagePart(data=data, mime_type=mime_type))
    if "audio" in abilities and (mime_type := sound_type(data)):
        return llm_pb2.ContentPart(audio=llm_pb2.AudioPart(data=data, mime_type=mime_type))
    return None
