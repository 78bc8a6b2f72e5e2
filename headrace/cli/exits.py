"""How a command ends: its exit code, and the errors that carry one."""

from __future__ import annotations

import click

COMPLETED, FAILED, USAGE, UNREACHABLE, CANCELLED = 0, 1, 2, 3, 130
"""2 is what click uses for wrong usage, 130 what shells use for Ctrl-C."""


class Refused(click.ClickException):
    """The server answered with a failure."""

    exit_code = FAILED


class Away(Refused):
    """The server answered, but a part of it is away: the same request may work a little later."""


class Unreachable(click.ClickException):
    """No server answers there."""

    exit_code = UNREACHABLE


class Cut(Unreachable):
    """A stream broke before its run had ended."""
