"""`python -m tests.run ARGUMENTS…`: runs pytest on all cores, and then the few failed tests again, alone.

CPython's runner does so with `--rerun`. A test that passes only alone depends on the machine's speed or on other tests:
a defect of the test, named in the last lines, and not of the code it tests.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

AGAIN_MAX = 5
"""Failures beyond this are no accident, and are not tried again."""

LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")

TEST_S_MAX = 1000
"""More than any test's own limit; one that waits for ever fails by its name, and the others go on in another worker."""

SHARED = ["-n", str((os.cpu_count() or 1) + 2), "--dist", "worksteal"]
"""Two workers more than cores, since tests wait; who is done takes from what another has left."""

LIMIT = [f"-ofaulthandler_timeout={TEST_S_MAX}", "-ofaulthandler_exit_on_timeout=true"]
PYTEST = [sys.executable, "-m", "pytest", *LIMIT]


MEMORY = Path("/dev/shm")
"""Where tests have their folders if it is there: what is synced there costs nothing. Few tests are about disks."""


def main() -> int:
    with ExitStack() as stack:
        options: list[str] = []
        if MEMORY.is_dir():
            # A short name: sockets lie in these folders, and their paths have 107 bytes.
            folder = stack.enter_context(tempfile.TemporaryDirectory(dir=MEMORY, prefix="hr"))
            options = [f"--basetemp={folder}/t"]
        return run_tests([*options, *sys.argv[1:]])


def run_tests(arguments: Sequence[str]) -> int:
    code = subprocess.run([*PYTEST, "--cache-clear", *SHARED, *arguments]).returncode
    if code != 1 or not LAST_FAILED.exists():
        return code
    failed: list[str] = list(json.loads(LAST_FAILED.read_text()))
    if len(failed) > AGAIN_MAX:
        return code
    print(f"{len(failed)} failed; once more, alone:", *failed, sep="\n  ", flush=True)
    again = subprocess.run([*PYTEST, *failed]).returncode
    if again == 0:
        print(f"UNSTABLE: passed only alone, which is a defect of the tests: {', '.join(failed)}", flush=True)
    return again


if __name__ == "__main__":
    sys.exit(main())
