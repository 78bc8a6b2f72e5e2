"""Each mode of examples/own_modes does what it says, by the one command that shows it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from services.config_check.definitions import read_definitions
from services.config_check.references import find_missing
from tests.support.pages import check_output

FOLDER = Path(__file__).parents[2] / "examples" / "own_modes"

SHOWN = {
    "triage": """\
fault
[tool] open_ticket({"id":…"summary":"The mill has stopped…}) -> opened ticket …
I am sorry. A ticket is open, and somebody looks at it.
""",
    "triage Is the mill open?": """\
else
The mill is open from nine to five.
""",
    "digest": """\
…
[notice] plan: [completed] Read document 3
Every mill needs something: a river, a hill or coal.
""",
    "debate": """\
…
[Argue for it] It pays for itself within a year.
[Argue against it] Nobody has counted what it costs to keep.
[Argue for it] Keeping it costs less than the flour it saves.
…
The side for it has won: it gave a number, and had an answer.
""",
}


@pytest.mark.parametrize("command", SHOWN)
async def test_an_example_shows_what_it_says(command: str) -> None:
    name, *question = command.split(" ", 1)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(FOLDER / "show.py"), name, *question),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(400):
            output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, output.decode() + errors.decode()
    check_output(output.decode(), SHOWN[command])


def test_headrace_check_reads_modes_and_names_what_is_missing(tmp_path: Path) -> None:
    definitions, refusals = read_definitions(FOLDER, {"SIMULATOR_URL": "http://127.0.0.1:1"})
    assert (refusals, [*find_missing(definitions)], definitions.modes) == ([], [], ["debate", "digest", "triage"])
    for part in ("modes", "agents"):
        (tmp_path / part).mkdir()
    (tmp_path / "modes" / "triage.py").write_text("async def run(mode):\n    return (\n")
    (tmp_path / "agents" / "triage.json").write_text((FOLDER / "agents" / "triage.json").read_text())
    definitions, refusals = read_definitions(tmp_path, {})
    assert [(refusal.file, refusal.problem) for refusal in refusals] == [
        ("modes/triage.py", "line 2: '(' was never closed")
    ]
    assert [(refusal.file, refusal.problem) for refusal in find_missing(definitions)] == [
        ("agents/triage.json", "custom.mode: there is no valid file modes/triage.py")
    ]
