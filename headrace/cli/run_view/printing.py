"""Prints what others have written: users, models and tools."""

from __future__ import annotations

import sys

import click

from headrace.shown_text import isolate, make_visible

CONTROLS = {code: None for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}
"""Characters that would control the terminal, for str.translate."""


def print_text(text: str) -> None:
    """Print a line, or several, without characters that would control the terminal."""
    click.echo(text.translate(CONTROLS))


def print_shown(text: str) -> None:
    """Print what a person decides about: all that would hide or reorder it is visible."""
    click.echo(show_text(text))


def show_text(text: str) -> str:
    """Return the text as it is to be read; only a terminal gets isolates, which a program would take for text."""
    visible = make_visible(text)
    return isolate(visible) if sys.stdout.isatty() else visible
