"""The interface of run views."""

from __future__ import annotations

import sys
from typing import Protocol

from rich.console import Console

from headrace.cli.run_view.plain_view import PlainView
from headrace.cli.run_view.scopes import ScopeLabel
from headrace.cli.run_view.terminal_view import TerminalView
from headrace.v1 import agent_pb2


class View(Protocol):
    """Receives each piece of a run once, in order, and displays it immediately."""

    is_live: bool
    """Whether a person is watching."""

    def show_query(self, text: str, by: str = "") -> None:
        """Show a question from a chat's history; `by` is its author if several users have asked."""
        ...

    def enter_scope(self, label: ScopeLabel) -> None:
        """Place all further output in this scope."""
        ...

    def write_content(self, block_id: str, text: str) -> None: ...

    def write_reasoning(self, block_id: str, text: str) -> None: ...

    def write_planning(self, block_id: str, text: str) -> None:
        """Show a planner's text other than its plan."""
        ...

    def open_call(self, call_id: str, name: str) -> None: ...

    def write_arguments(self, call_id: str, text: str) -> None: ...

    def close_arguments(self, call_id: str) -> None: ...

    def write_output(self, call_id: str, text: str) -> None: ...

    def show_result(self, call_id: str, result: str, ok: bool) -> None: ...

    def show_notice(self, text: str) -> None: ...

    def show_prompt(self, text: str) -> None:
        """Show a question to the user."""
        ...

    def set_budget(self, text: str) -> None: ...

    def show_waiting(self, elapsed_s: float) -> None:
        """Show the time since the last event."""
        ...

    def show_end(self, end: agent_pb2.AgentDelta) -> None: ...


def choose_view() -> View:
    console = Console(highlight=False)
    if console.is_terminal and not console.is_dumb_terminal:
        return TerminalView(console)
    return PlainView(sys.stdout.buffer)
