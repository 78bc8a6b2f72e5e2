"""`headrace up` over the examples on a simulated model, in a process of its own until a block ends."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

EXAMPLES = Path(__file__).parents[1]
READY = re.compile(r"ready: (http://\S+)")


@contextmanager
def open_suite(**env: str) -> Generator[str]:
    """Start it with settings beside those of our own environment, and give its address when it is ready."""
    with tempfile.TemporaryDirectory(prefix="headrace-example-") as data:
        up = [sys.executable, "-m", "headrace.cli", "up", "--simulate", "--simulate-port", "0", "--port", "0"]
        up += ["--grpc-port", "0", "--config-dir", str(EXAMPLES), "--data-dir", data]
        with subprocess.Popen(up, stdout=subprocess.PIPE, text=True, env=os.environ | env) as process:
            assert process.stdout is not None
            try:
                yield wait_until_ready(process.stdout)
            finally:
                process.terminate()
                process.stdout.read()


def wait_until_ready(output: IO[str]) -> str:
    for line in output:
        if match := READY.search(line):
            return match[1]
    raise RuntimeError("headrace up ended before it was ready; it has said why")
