"""headrace health: whether everything is ready."""

from __future__ import annotations

import sys
from contextlib import suppress

import click

from headrace.cli.facade.client import FacadeClient, make_request
from headrace.cli.facade.exit_codes import COMPLETED, FAILED, RequestRefused
from headrace.cli.facade.options import url_option
from headrace.v1 import tools_pb2


@click.command()
@url_option
def health(url: str) -> None:
    """Print for each service, with what it needs itself, whether it is ready; exit 1 when one is not.

    Names the tools that cannot be used, as far as the credential may list them.
    """
    readiness, unusable = make_request(url, _examine)
    for name, is_ready in readiness.items():
        left_out = f", except {', '.join(unusable)}: `headrace tools` says why" if name == "tools" and unusable else ""
        click.echo(f"{name:13} {'ready' if is_ready else 'not ready'}{left_out}")
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
