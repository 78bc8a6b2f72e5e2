"""How a command ends: exit codes and the errors that carry them."""

from __future__ import annotations

import click

COMPLETED, FAILED, USAGE, UNREACHABLE, CANCELLED = 0, 1, 2, 3, 130
"""Exit codes; 2 is click's for wrong usage, 130 the shells' for Ctrl-C."""


class RequestRefused(click.ClickException):
    exit_code = FAILED


class PeerUnavailable(RequestRefused):
    """A service behind the facade is away; a retry may work."""


class ServerUnreachable(click.ClickException):
    exit_code = UNREACHABLE


class StreamCut(ServerUnreachable):
    """A stream broke before its run had ended."""
