"""Lanes: where in a run something happens. Tasks and sub-agents run beside each other, and are shown apart."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.cli.events import Event

LABEL_CHARS_MAX = 40


@dataclass(frozen=True, slots=True)
class Lane:
    """The run itself, a task of its plan, or a sub-agent."""

    depth: int = 0
    label: str = ""
    """For people; empty: the run itself."""


MAIN = Lane()


class Lanes:
    """The lanes of one run, learned from its events."""

    def __init__(self) -> None:
        self._by_ids: dict[tuple[str, str], Lane] = {}

    def of(self, event: Event) -> Lane:
        """Where `event` happened; one that begins a lane tells its name first."""
        ids = event.scope
        if event.type == "task.start":
            label = event.task_name or event.description or event.task_id
            self._by_ids[ids] = Lane(self._at((event.subagent_id, "")).depth + 1, _short(label))
        elif event.type == "subagent.start":
            name = event.agent_key or event.subagent_id
            parent = self._at((event.parent_id, "") if (event.parent_id, "") in self._by_ids else ("", event.task_id))
            self._by_ids[event.subagent_id, ""] = Lane(parent.depth + 1, _short(f"{name}: {event.goal}"))
        return self._at(ids)

    def _at(self, ids: tuple[str, str]) -> Lane:
        if ids == ("", ""):
            return MAIN
        return self._by_ids.get(ids) or Lane(1, _short(ids[1] or ids[0]))


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LABEL_CHARS_MAX else f"{line[: LABEL_CHARS_MAX - 1]}…"
