"""Ports to listen on, checked before anything starts."""

from __future__ import annotations

import socket

from headrace.cli.supervisor.start_errors import CannotStart


def find_free_port(option: str, port: int) -> int:
    """Return the port if it is free; for 0, any free one.

    A taken port may be another suite's facade, which would answer as ready.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise CannotStart(f"{option} {port} cannot be had ({error.strerror}); 0 takes any free port") from error
        return int(probe.getsockname()[1])
