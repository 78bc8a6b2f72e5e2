"""How a run is shown. Two ways: for a person at a terminal, and as plain text for everything else."""

from __future__ import annotations

import sys
from typing import Protocol

from rich.console import Console

from headrace.cli.events import Event
from headrace.cli.lanes import Lane
from headrace.cli.plain import PlainView
from headrace.cli.terminal import TerminalView


class View(Protocol):
    """Gets each piece once, in order, and shows it at once."""

    is_live: bool
    """Whether a person watches, to whom standing figures are of use."""

    def query(self, text: str) -> None:
        """What was asked; history only."""
        ...

    def enter(self, lane: Lane) -> None:
        """Where what follows happens."""
        ...

    def content(self, block_id: str, text: str) -> None:
        """A piece of the answer, or of what a task or a sub-agent says."""
        ...

    def reasoning(self, block_id: str, text: str) -> None:
        """A piece of what the model thinks."""
        ...

    def tool_started(self, tool_id: str, name: str) -> None: ...

    def tool_arguments(self, tool_id: str, text: str) -> None:
        """A piece of the arguments, as the model writes them."""
        ...

    def tool_ended(self, tool_id: str) -> None:
        """The arguments are complete."""
        ...

    def tool_output(self, tool_id: str, text: str) -> None:
        """A piece of what a running tool prints."""
        ...

    def tool_result(self, tool_id: str, result: str, ok: bool) -> None: ...

    def notice(self, text: str) -> None:
        """Something to know that ends nothing."""
        ...

    def ask(self, prompt: str) -> None:
        """What a person is asked now."""
        ...

    def left(self, text: str) -> None:
        """What the run may still spend."""
        ...

    def waiting(self, elapsed_s: float) -> None:
        """Nothing has come for so long."""
        ...

    def ended(self, event: Event) -> None:
        """The run's terminal event."""
        ...


def view() -> View:
    """The view for standard output."""
    console = Console(highlight=False)
    if console.is_terminal and not console.is_dumb_terminal:
        return TerminalView(console)
    return PlainView(sys.stdout.buffer)
