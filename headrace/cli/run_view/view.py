"""The views of a run: each receives each piece once, in order, and displays it immediately."""

from __future__ import annotations

import sys
from typing import TypeAlias

from rich.console import Console

from headrace.cli.run_view.plain_view import PlainView
from headrace.cli.run_view.terminal_view import TerminalView

View: TypeAlias = PlainView | TerminalView


def choose_view() -> View:
    console = Console(highlight=False)
    if console.is_terminal and not console.is_dumb_terminal:
        return TerminalView(console)
    return PlainView(sys.stdout.buffer)
