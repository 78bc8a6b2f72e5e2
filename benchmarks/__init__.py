"""What Headrace costs, measured beside peers: `python -m benchmarks.entrances`, `.memory`, `.waiting` and others."""

import os

os.environ.setdefault(
    "GRPC_ENABLE_FORK_SUPPORT", "0"
)  # see services/runtime/process/program.py: here clients are imported first
