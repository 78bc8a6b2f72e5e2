"""What a delta costs, measured: `python -m benchmarks` prints it beside a direct reader and a bare aiohttp relay."""

import os

os.environ.setdefault(
    "GRPC_ENABLE_FORK_SUPPORT", "0"
)  # see services/runtime/process/program.py: here clients are imported first
