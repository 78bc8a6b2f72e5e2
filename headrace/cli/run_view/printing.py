"""Prints what others have written: users, models and tools."""

from __future__ import annotations

import click

CONTROLS = {code: None for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}
"""Characters that would control the terminal, for str.translate."""


def print_text(text: str) -> None:
    """Print a line, or several, without characters that would control the terminal."""
    click.echo(text.translate(CONTROLS))
