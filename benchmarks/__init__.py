"""Benchmarks of Headrace, compared with peers: `python -m benchmarks.entrances`, `.memory`, `.waiting` and others."""

import os

os.environ.setdefault(
    "GRPC_ENABLE_FORK_SUPPORT", "0"
)  # as services/runtime/process/program.py does; clients are imported first here
