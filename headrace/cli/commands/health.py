"""headrace health: whether everything is ready."""

from __future__ import annotations

import sys
from contextlib import suppress

import click

from headrace.cli.facade.client import FacadeClient, make_request
from headrace.cli.facade.command import FacadeCommand
from headrace.cli.facade.exit_codes import COMPLETED, FAILED, RequestRefused
from headrace.cli.run_view.answers import is_json_wanted, json_option, print_json
from headrace.cli.run_view.tables import print_table
from headrace.v1 import tools_pb2


@click.command(cls=FacadeCommand)
@json_option
def health() -> None:
    """Show whether each service is ready.

    A service is ready if the services it depends on are ready. Names the tools that cannot be used, as far as the
    credential may list them. Exit codes: 0 all are ready, 1 at least one is not.
    """
    readiness, unusable = make_request(_examine)
    if is_json_wanted():
        print_json(readiness)
    else:
        rows = [(name, "ready" if is_ready else "not ready") for name, is_ready in readiness.items()]
        print_table(("service", "state"), rows)
        if unusable:
            click.echo(f"cannot be used: {', '.join(unusable)}; `headrace tools` says why")
    sys.exit(COMPLETED if readiness and all(readiness.values()) else FAILED)


async def _examine(facade: FacadeClient) -> tuple[dict[str, bool], list[str]]:
    """Return the readiness of each service, and the tools that cannot be used."""
    readiness = await facade.fetch_readiness()
    unusable: list[str] = []
    if readiness.get("tools"):
        with suppress(RequestRefused):  # without a credential that may list them
            listed = await facade.send(tools_pb2.ListToolsRequest(common_only=True))
            unusable = [tool.name for tool in listed.tools if tool.unavailable]
    return readiness, unusable
