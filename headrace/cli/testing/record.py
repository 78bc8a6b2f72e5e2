"""headrace record: downloads a recorded run as a cassette."""

from __future__ import annotations

import click
import msgspec

from headrace.cli.facade.client import FacadeClient, make_request
from headrace.cli.facade.options import url_option


class _Page(msgspec.Struct, frozen=True, rename="camel"):
    lines: list[str] = []
    next_page_token: str = ""


@click.command()
@url_option
@click.argument("run_id")
def record(url: str, run_id: str) -> None:
    """Write the recording of the ended run RUN_ID, as a cassette for `headrace replay`.

    A run is recorded if its query (`headrace ask --record`) or its agent's file sets `record: true`.
    """

    async def fetch_page(facade: FacadeClient) -> _Page:
        parameters = {"runId": run_id} | ({"pageToken": token} if token else {})
        return msgspec.json.decode(await facade.get("/api/cassette", **parameters), type=_Page)

    token = ""
    while True:
        page = make_request(url, fetch_page)
        for line in page.lines:
            click.echo(line)
        if not (token := page.next_page_token):
            return
