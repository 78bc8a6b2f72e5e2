"""Whether a port can be listened on, asked before anything starts."""

from __future__ import annotations

import socket

from headrace.cli.child import CannotStart


def free_port(option: str, port: int) -> int:
    """The port to listen on: `port` itself if it is free, any free one for 0.

    What holds it may well be another suite's facade, which would answer as ready.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise CannotStart(f"{option} {port} cannot be had ({error.strerror}); 0 takes any free port") from error
        return int(probe.getsockname()[1])
