"""headrace record: downloads a recorded run as a cassette."""

from __future__ import annotations

import click

from headrace.cli.facade.client import send_request
from headrace.cli.facade.command import FacadeCommand
from headrace.v1 import agent_pb2


@click.command(cls=FacadeCommand)
@click.argument("run_id")
def record(run_id: str) -> None:
    """Write the cassette of an ended run.

    headrace replay and headrace fork read it. A run is recorded if its query (headrace ask --record) or its agent's
    file sets record: true.
    """

    request = agent_pb2.GetCassetteRequest(run_id=run_id)
    while True:
        page: agent_pb2.GetCassetteResponse = send_request(request)
        for line in page.lines:
            click.echo(line)
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token
