"""The error of a suite that cannot start."""

from __future__ import annotations

import click

from headrace.cli.facade.exit_codes import FAILED


class CannotStart(click.ClickException):
    exit_code = FAILED
