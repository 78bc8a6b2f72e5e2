"""The interface of a run's views."""

from __future__ import annotations

import sys
from typing import Protocol

from rich.console import Console

from headrace.cli.run_view.plain_view import PlainView
from headrace.cli.run_view.scopes import ScopeLabel
from headrace.cli.run_view.terminal_view import TerminalView
from headrace.v1 import agent_pb2


class View(Protocol):
    """Gets each piece of a run once, in order, and shows it at once."""

    is_live: bool
    """Whether a person watches."""

    def show_query(self, text: str, by: str = "") -> None:
        """Show a question of a chat's history, and who has asked it where several have."""
        ...

    def enter_scope(self, label: ScopeLabel) -> None:
        """Place everything from now on in that scope."""
        ...

    def write_content(self, block_id: str, text: str) -> None: ...

    def write_reasoning(self, block_id: str, text: str) -> None: ...

    def write_planning(self, block_id: str, text: str) -> None:
        """Show what a planner says beside its plan."""
        ...

    def open_call(self, call_id: str, name: str) -> None: ...

    def write_arguments(self, call_id: str, text: str) -> None: ...

    def close_arguments(self, call_id: str) -> None: ...

    def write_output(self, call_id: str, text: str) -> None: ...

    def show_result(self, call_id: str, result: str, ok: bool) -> None: ...

    def show_notice(self, text: str) -> None: ...

    def show_prompt(self, text: str) -> None:
        """Show a question to a person."""
        ...

    def set_budget(self, text: str) -> None: ...

    def show_waiting(self, elapsed_s: float) -> None:
        """Show how long nothing has come."""
        ...

    def show_end(self, end: agent_pb2.AgentDelta) -> None: ...


def choose_view() -> View:
    console = Console(highlight=False)
    if console.is_terminal and not console.is_dumb_terminal:
        return TerminalView(console)
    return PlainView(sys.stdout.buffer)
