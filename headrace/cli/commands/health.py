"""headrace health: whether everything is ready."""

from __future__ import annotations

import sys

import click

from headrace.cli.answers import is_json_wanted, json_option, print_json
from headrace.cli.facade.client import FacadeClient, make_request
from headrace.cli.facade.command import FacadeCommand
from headrace.cli.facade.exit_codes import COMPLETED, FAILED
from headrace.cli.run_view.tables import print_table


@click.command(cls=FacadeCommand)
@json_option
def health() -> None:
    """Show whether each service is ready.

    A service is ready if the services it depends on are ready. Exit codes: 0 all are ready, 1 at least one is not.
    """
    readiness = make_request(FacadeClient.fetch_readiness)
    if is_json_wanted():
        print_json(readiness)
    else:
        rows = [(name, "ready" if is_ready else "not ready") for name, is_ready in readiness.items()]
        print_table(("service", "state"), rows)
    sys.exit(COMPLETED if readiness and all(readiness.values()) else FAILED)
