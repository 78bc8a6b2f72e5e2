"""Exit codes of commands, and the errors that carry them."""

from __future__ import annotations

from typing import Any

import click

from headrace.shown_text import make_visible

COMPLETED, FAILED, USAGE, UNREACHABLE, WAITING, CANCELLED = 0, 1, 2, 3, 4, 130
"""Exit codes; 2 is click's code for wrong usage, 130 the shells' code for Ctrl-C."""


class RequestRefused(click.ClickException):
    exit_code = FAILED


class PeerUnavailable(RequestRefused):
    """A service used by the facade is unavailable; a retry may succeed."""


class ServerUnreachable(click.ClickException):
    exit_code = UNREACHABLE


class StreamCut(ServerUnreachable):
    """A stream broke before the end of its run."""


class RunWaits(click.ClickException):
    """The run waits for a person's answer, and continues without the command."""

    exit_code = WAITING

    def show(self, file: Any = None) -> None:
        click.echo(make_visible(self.message), err=True)
