"""Reserve the listening ports before any process starts."""

from __future__ import annotations

import socket
from collections.abc import Generator
from contextlib import contextmanager

import click

from headrace.cli.facade.exit_codes import FAILED


class CannotStart(click.ClickException):
    exit_code = FAILED


@contextmanager
def reserve_port(option: str, port: int) -> Generator[int]:
    """Keep the port, or for 0 any free one, for a process of ours that is going to listen there.

    A taken port may be another suite's facade, which would answer as ready. Our socket never listens, so that another
    with SO_REUSEADDR may do so, while the kernel gives the port to nobody who takes any.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            held.bind(("127.0.0.1", port))
        except OSError as error:
            raise CannotStart(f"{option} {port} cannot be had ({error.strerror}); 0 takes any free port") from error
        yield int(held.getsockname()[1])
