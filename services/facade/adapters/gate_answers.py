"""Converts a user's answer to a gate, in another protocol's form, into a Submit payload."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from typing import Any

import msgspec
import orjson

from headrace.errors import InvalidRequest

APPROVAL, CREDENTIAL = "approval", "credential"

_GATE_ID = re.compile(r"([0-9a-f]{32})\.(\d{1,15})\.([at])\.(.{1,256})", re.ASCII)


@dataclass(frozen=True, slots=True)
class GateRef:
    """A gate's id for other programs; it contains the run id, so any replica can find the run."""

    run_id: str
    last_seq: int
    """Sequence number of the last event that the reader received."""

    gate_id: str
    is_approval: bool

    def __str__(self) -> str:
        letter = "a" if self.is_approval else "t"
        return f"{uuid.UUID(self.run_id).hex}.{self.last_seq}.{letter}.{self.gate_id}"


def parse_gate_ref(text: str) -> GateRef | None:
    """Parse a gate reference; None if no facade issued it."""
    match = _GATE_ID.fullmatch(text)
    if match is None:
        return None
    run, seq, letter, gate = match.groups()
    return GateRef(str(uuid.UUID(run)), int(seq), gate, letter == "a")


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer to a waiting run, from a user or from the calling program."""

    run_id: str
    gate_id: str
    is_approval: bool
    payload: str
    """JSON text."""


def make_answer(gate: GateRef, given: Any, name: str, *, is_refused: bool) -> Answer:
    """Return the Submit answer for a gate; a refusal rejects an approval, or marks a form as cancelled.

    An approval's decision may be {"decision": …}, {"approved": true} or just true. `name` is the request field,
    for errors.
    """
    if gate.is_approval:
        payload = {"decision": "reject"} if is_refused else _read_decision(given, name)
    else:
        payload = {"cancelled": True} if is_refused else given
    return Answer(gate.run_id, gate.gate_id, gate.is_approval, msgspec.json.encode(payload).decode())


def parse_text(text: Any) -> Any:
    """Return the value of JSON text; other text becomes the answer's only field."""
    try:
        return orjson.loads(text)
    except (orjson.JSONDecodeError, TypeError):
        return {"answer": text}


def _read_decision(given: Any, name: str) -> dict[str, Any]:
    if isinstance(given, dict) and "decision" not in given and isinstance(given.get("approved"), bool):
        given = given["approved"]
    if isinstance(given, bool):
        return {"decision": "approve" if given else "reject"}
    if not isinstance(given, dict):
        raise InvalidRequest.of(name, f"must be the answer to an {APPROVAL}: an object with a decision")
    return given
