"""headrace health: whether everything is ready."""

from __future__ import annotations

import asyncio
import sys

import click

from headrace.cli.exits import COMPLETED, FAILED
from headrace.cli.options import url_option
from headrace.cli.server import Server


@click.command()
@url_option
def health(url: str) -> None:
    """Print for each service, with what it needs itself, whether it is ready; exit 1 when one is not."""
    ready = asyncio.run(_ready(url))
    for name, is_ready in ready.items():
        click.echo(f"{name:13} {'ready' if is_ready else 'not ready'}")
    sys.exit(COMPLETED if ready and all(ready.values()) else FAILED)


async def _ready(url: str) -> dict[str, bool]:
    async with Server(url) as server:
        return await server.ready()
