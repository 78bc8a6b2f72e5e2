"""What examples of clients start: `headrace up` over the examples on a simulated model, until a block ends; and others'
programs, which are installed at the first time.
"""

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
CLIENTS = EXAMPLES.parent / "build" / "clients"
READY = re.compile(r"ready: (http://\S+)")


def prepare(name: str) -> Path:
    """Return the folder with the programs of others, which are installed if they are not there."""
    if not (CLIENTS / name / "done").exists():
        subprocess.run(["make", "--no-print-directory", f"build/clients/{name}/done"], cwd=EXAMPLES.parent, check=True)
    return CLIENTS / name


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
