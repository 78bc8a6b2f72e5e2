"""How a command ends: its exit code, and the errors that carry one."""

from __future__ import annotations

import click

COMPLETED, FAILED, USAGE, UNREACHABLE, CANCELLED = 0, 1, 2, 3, 130
"""2 is what click uses for wrong usage, 130 what shells use for Ctrl-C."""


class RequestRefused(click.ClickException):
    """The server answered with a failure."""

    exit_code = FAILED


class PeerUnavailable(RequestRefused):
    """A service behind the facade is away: the same request may work a little later."""


class ServerUnreachable(click.ClickException):
    """No server answers there."""

    exit_code = UNREACHABLE


class StreamCut(ServerUnreachable):
    """A stream broke before its run had ended."""
