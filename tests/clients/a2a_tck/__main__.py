"""`python -m tests.clients.a2a_tck KIT PYTHON`: the A2A compatibility kit of the folder KIT against a real suite.

PYTHON has the kit's dependencies. Exits with 1 if something fails that docs/protocols.md does not name, or if
something passes that it names as failing.
"""

import asyncio
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.support.suite import up

CONFIG = Path(__file__).with_name("config")

EXPECTED = (
    "test_last_modified_present",
    "test_task_has_file_artifact",
    "test_task_has_file_url_artifact",
    "test_task_has_data_artifact",
    "test_returns_message_with_text_part",
    "test_must_requirement[CORE-MULTI-002a-",
)
"""Beginnings of the names of tests that fail; docs/protocols.md says why."""

_FAILED = re.compile(r"^FAILED \S+::(\S+)", re.MULTILINE)


async def main(kit: Path, python: Path) -> int:
    settings = {"HEADRACE_FACADE_A2A_LISTEN": "127.0.0.1:0", "HEADRACE_DRAIN_S": "0.2"}
    settings["HEADRACE_MEMORY_WEBHOOK_ALLOW"] = "localhost"
    with tempfile.TemporaryDirectory() as data_dir:
        async with up("--config-dir", str(CONFIG), "--data-dir", data_dir, **settings) as suite:
            command = (python, "run_tck.py", "--sut-host", f"{suite.url}/a2a/tck", "--", "-p", "no:cacheprovider")
            process = await asyncio.create_subprocess_exec(*command, cwd=kit, stdout=asyncio.subprocess.PIPE)
            output, _ = await process.communicate()
    report = output.decode()
    print(report)
    failed = set(_FAILED.findall(report))
    surprises = [name for name in sorted(failed) if not name.startswith(EXPECTED)]
    passing = [name for name in EXPECTED if not any(failed_name.startswith(name) for failed_name in failed)]
    print(f"{len(failed)} failed, of which {len(surprises)} unexpected: {surprises}; expected, and passing: {passing}")
    return int(bool(surprises or passing) or " passed" not in report)


def read_arguments(arguments: Sequence[str]) -> tuple[Path, Path]:
    kit, python = map(Path, arguments)
    return kit.absolute(), python.absolute()


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*read_arguments(sys.argv[1:]))))
