"""Reserves the listening ports before any process starts."""

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
    """Reserve a port, or any free one for 0, on which one of our processes will listen.

    A taken port may belong to another suite's facade, which would answer as ready. Our socket never listens, so
    a process with SO_REUSEADDR can still bind the port, while the kernel does not hand it out as a free port.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            held.bind(("127.0.0.1", port))
        except OSError as error:
            raise CannotStart(f"{option} {port} cannot be used ({error.strerror}); 0 takes any free port") from error
        yield int(held.getsockname()[1])
