"""People's changes of a summary: another text for it, and messages pinned behind it.

Their lines belong to no run, and hold from the next request on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from services.memory.log.lines import Pin, SummaryEdit

if TYPE_CHECKING:
    from services.memory.log.lines import Line

HEADING = "Pinned by the user, word for word:"


@dataclass(frozen=True, slots=True)
class SummaryChanges:
    edit: SummaryEdit | None = None
    pins: tuple[Pin, ...] = ()
    """Pinned messages that the summary stands for, in the order of the log."""

    @property
    def version(self) -> str:
        """Differs where the text does."""
        return " ".join(str(line.n) for line in (*([] if self.edit is None else [self.edit]), *self.pins))

    def choose_text(self, written: str) -> str:
        return written if self.edit is None else self.edit.content

    def apply_to(self, written: str) -> str:
        return "\n\n".join([self.choose_text(written), *([format_pins(self.pins)] if self.pins else [])])


NO_CHANGES = SummaryChanges()


def format_pins(pins: Sequence[Pin]) -> str:
    return "\n\n".join([HEADING, *(pin.text for pin in pins)])


def find_changes(lines: Iterable[Line], summary_uuid: str, before_n: int) -> SummaryChanges:
    """Find the changes of a summary that stands for the lines before `before_n`, in the lines of no run."""
    lines = list(lines)
    edits = [line for line in lines if isinstance(line, SummaryEdit) and line.parent_uuid == summary_uuid]
    pins = tuple(pin for pin in list_pins(lines) if pin.target < before_n)
    return SummaryChanges(edits[-1] if edits else None, pins)


def list_pins(lines: Iterable[Line]) -> list[Pin]:
    """List what is pinned, by the order of the messages."""
    pins: dict[int, Pin] = {}
    for line in lines:
        if isinstance(line, Pin):
            pins[line.target] = line
    return sorted((pin for pin in pins.values() if pin.text), key=lambda pin: pin.target)
