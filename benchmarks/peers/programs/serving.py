"""Serves a hand-written peer with uvicorn's fastest settings: one process, uvloop, httptools, no access log."""

from __future__ import annotations

import socket

import uvicorn
from fastapi import FastAPI


def run_app(app: FastAPI) -> None:
    """Serve on a free port and print the URL."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=2000)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    config = uvicorn.Config(app, loop="uvloop", http="httptools", log_level="error", access_log=False)
    uvicorn.Server(config).run(sockets=[listener])
