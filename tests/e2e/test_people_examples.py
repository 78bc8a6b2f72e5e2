"""Each program of examples/people shows what it says it does, and stops by itself."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from tests.support.pages import check_output
from tests.support.tiers import check_first

PEOPLE = Path(__file__).parents[2] / "examples" / "people"

SHOWN = {
    "four_eyes": """\
gate: pay {"to":…"Miller & Sons",…1200…} waits for 2 of role:finance
ada: approves, and is refused: PERMISSION_DENIED
bob: approves: voted, 1 missing
cleo: approves: accepted, 0 missing
tool: paid 1200.00 EUR to Miller & Sons
run: complete
""",
    "on_call": """\
nina: is shown restart_pump {…stopped…}, and is asleep
gate: reminded
gate: escalated
carla: approves: accepted
gate: answered by carla
tool: the pump runs
run: complete
schedule: its last time is started, in chat …
""",
    "two_tabs": """\
form: {…Book a table for two…}
tab 1: claims the form, and is closed
tab 2: claims it too, and is refused: CLAIMED
tab 2: takes it over when the lease has ended
tab 1: is opened again, and answers, and is refused: CLAIMED
tab 2: answers what the form does not take, and is refused: INVALID_REQUEST
tab 2: answers: accepted
tool: {"choice": "yes"}
run: complete
""",
}


@pytest.mark.parametrize("name", check_first(SHOWN))
async def test_an_example_shows_what_it_says(name: str) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(PEOPLE / f"{name}.py"), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(400):
            output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, output.decode() + errors.decode()
    lines = [" ".join(line.split()) for line in output.decode().splitlines()]
    check_output("\n".join(lines), SHOWN[name])


def test_every_program_is_tried_and_named_where_newcomers_look() -> None:
    programs = {path.stem for path in PEOPLE.glob("*.py")} - {"suite"}
    assert programs == SHOWN.keys()
    page = (PEOPLE.parent / "README.md").read_text()
    assert all(f"examples/people/{name}.py" in page for name in programs)
