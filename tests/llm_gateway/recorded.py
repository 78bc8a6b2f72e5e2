"""The streams of tests/llm_gateway/streams: a provider's bytes in NAME.sse, and in NAME.json what they must become.

They are made by hand in the form that providers were seen to send; `about` says which and what is odd. In the expected
deltas `call_*` is any id made here. `error` is the reason that ends the stream, `usage` null where none may come.
"""

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from headrace.v1 import common_pb2, llm_pb2

FOLDER = Path(__file__).parent / "streams"

TAKEN_ID = "call_old"
"""The tool-call id that the conversation before each stream has already."""

ODD_KINDS = ("started", "usage", "finish")
"""Deltas that the file says in fields of their own."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """One stream and what it must become."""

    name: str
    protocol: str
    data: bytes
    deltas: list[dict[str, Any]]
    usage: dict[str, Any] | None
    finish: str | None
    error: str | None


def load_recorded() -> list[Recorded]:
    """All of them."""
    return [_read(path) for path in sorted(FOLDER.glob("*.sse"))]


def _read(path: Path) -> Recorded:
    said = orjson.loads(path.with_suffix(".json").read_bytes())
    return Recorded(
        name=path.stem,
        protocol=said["protocol"],
        data=path.read_bytes(),
        deltas=said["deltas"],
        usage=said["usage"],
        finish=said.get("finish"),
        error=said.get("error"),
    )


def describe_deltas(deltas: Iterable[llm_pb2.LlmDelta]) -> list[dict[str, Any]]:
    """Deltas as the files write them."""
    return [_describe_delta(delta) for delta in deltas if delta.WhichOneof("delta") not in ODD_KINDS]


def _describe_delta(delta: llm_pb2.LlmDelta) -> dict[str, Any]:
    kind = delta.WhichOneof("delta") or ""
    if kind == "provider_state":
        return {kind: orjson.loads(delta.provider_state)}
    if kind == "media":
        media = delta.media
        data = base64.b64encode(media.data).decode()
        return {kind: {"mime_type": media.mime_type, "data": data, "problem": media.problem}}
    if kind != "tool_call":
        return {kind: getattr(delta, kind)}
    call = delta.tool_call
    is_made = call.id.startswith("call_") and len(call.id) > 20
    call_id = "call_*" if is_made else call.id
    return {kind: {"index": call.index, "id": call_id, "name": call.name, "arguments": call.arguments}}


def spent(usage: common_pb2.Usage) -> dict[str, Any]:
    """Usage as the files write it."""
    return {field.name: value for field, value in usage.ListFields() if field.name != "model_calls"}
