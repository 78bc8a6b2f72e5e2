"""A recorded run as gRPC sends it: live, and again to readers that attach later."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.runs.fold import TERMINAL
from headrace.v1 import agent_pb2
from tests.support.facade.scripted import CHAT as CHAT
from tests.support.facade.scripted import RUN as RUN

Delta = agent_pb2.AgentDelta

BEGAN_AT_MS = 1_700_000_000_000
TAKEN_OVER = 1_000_000
"""Where an owner of generation 1 continues to count."""

KINDS = ("content", "reasoning", "tool", "action")
STATES = {"run_complete": "completed", "run_cancel": "cancelled", "run_error": "failed"}


@dataclass(frozen=True, slots=True)
class RecordedRun:
    name: str
    deltas: Sequence[Delta]
    is_waiting: bool = False
    """Whether the run waits after its last event."""

    @property
    def state(self) -> str:
        """The state of the run after all events."""
        ends = [kind for delta in self.deltas if (kind := delta.WhichOneof("payload") or "") in TERMINAL]
        return STATES[ends[0]] if ends else "waiting"

    @property
    def middle_seq(self) -> int:
        return self.deltas[len(self.deltas) // 2].seq

    def tell_again(self, last_seq: int = 0) -> list[Delta]:
        """Return what Attach gives after `last_seq` when the run has come to two thirds."""
        read = [delta for delta in self.deltas if delta.seq <= self.deltas[2 * len(self.deltas) // 3].seq]
        unread = [*self.deltas[len(read) :]]
        return [*_shorten(read, last_seq), *unread]


def number_events(deltas: Iterable[Delta]) -> list[Delta]:
    """Number copies of the events. A reset with `from_seq` 1 is from a new owner of the run, with 0 from the same."""
    numbered: list[Delta] = []
    seq = 0
    for delta in deltas:
        copy = Delta.FromString(delta.SerializeToString())
        if copy.HasField("attempt_reset"):
            is_taken_over = copy.attempt_reset.from_seq == 1
            copy.attempt_reset.from_seq = max(3, seq - (2 if is_taken_over else 6))
            seq = max(seq, TAKEN_OVER) if is_taken_over else seq
        seq += 1
        copy.seq, copy.timestamp = seq, BEGAN_AT_MS + 7 * (seq % TAKEN_OVER)
        numbered.append(copy)
    return numbered


def _shorten(read: Sequence[Delta], last_seq: int) -> list[Delta]:
    """Return the events after `last_seq`, with each block complete or up to its current state."""
    first, text, last = dict[str, Delta](), dict[str, str](), dict[str, Delta]()
    order: list[Delta | str] = []
    for delta in read:
        name = delta.WhichOneof("payload") or ""
        kind, _, part = name.partition("_")
        if kind not in KINDS or part not in ("start", "delta", "args", "end"):
            order.append(delta)
            continue
        payload = getattr(delta, name)
        block_id = f"{kind} {getattr(payload, f'{kind}_id')}"
        if part == "start":
            first[block_id], text[block_id] = delta, ""
            order.append(block_id)
        text[block_id] = text.get(block_id, "") + getattr(payload, "delta", "")
        last[block_id] = delta
    shortened: list[Delta] = []
    for entry in order:
        if isinstance(entry, Delta):
            shortened += [entry] if entry.seq > last_seq else []
        elif last[entry].seq > last_seq:
            shortened += _retell(entry.partition(" ")[0], first[entry], text[entry], last[entry])
    return shortened


def _retell(kind: str, first: Delta, text: str, last: Delta) -> list[Delta]:
    """Return an ended block as its snapshot, and an open block as its start and one delta."""
    block_id: Any = getattr(getattr(first, f"{kind}_start"), f"{kind}_id")
    end = last.WhichOneof("payload") or ""
    piece = Delta(seq=last.seq, timestamp=last.timestamp)
    for name in ("subagent_id", "task_id"):
        if first.HasField(name):
            setattr(piece, name, getattr(first, name))
    if not end.endswith("_end"):
        part = getattr(piece, f"{kind}_{'delta' if kind in ('content', 'reasoning') else 'args'}")
        setattr(part, f"{kind}_id", block_id)
        part.delta = text
        return [first, piece] if text else [first]
    snapshot, start = getattr(piece, f"{kind}_snapshot"), getattr(first, f"{kind}_start")
    for field, value in start.ListFields():
        if field.name in snapshot.DESCRIPTOR.fields_by_name:
            setattr(snapshot, field.name, value)
    if kind in ("content", "reasoning"):
        snapshot.text = text
    else:
        snapshot.arguments = text
    if kind == "tool":
        snapshot.tool_params = last.tool_end.tool_params
    return [piece]
