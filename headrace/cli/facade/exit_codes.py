"""Exit codes of commands, and the errors that carry them."""

from __future__ import annotations

import click

COMPLETED, FAILED, USAGE, UNREACHABLE, CANCELLED = 0, 1, 2, 3, 130
"""Exit codes; 2 is click's code for wrong usage, 130 the shells' code for Ctrl-C."""


class RequestRefused(click.ClickException):
    exit_code = FAILED


class PeerUnavailable(RequestRefused):
    """A service used by the facade is unavailable; a retry may succeed."""


class ServerUnreachable(click.ClickException):
    exit_code = UNREACHABLE


class StreamCut(ServerUnreachable):
    """A stream broke before the end of its run."""
