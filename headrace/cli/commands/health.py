"""headrace health: whether everything is ready."""

from __future__ import annotations

import sys

import click

from headrace.cli.facade.client import FacadeClient, make_request
from headrace.cli.facade.command import FacadeCommand
from headrace.cli.facade.exit_codes import COMPLETED, FAILED


@click.command(cls=FacadeCommand)
def health() -> None:
    """Print for each service, with what it needs itself, whether it is ready; exit 1 when one is not."""
    readiness = make_request(FacadeClient.fetch_readiness)
    for name, is_ready in readiness.items():
        click.echo(f"{name:13} {'ready' if is_ready else 'not ready'}")
    sys.exit(COMPLETED if readiness and all(readiness.values()) else FAILED)
