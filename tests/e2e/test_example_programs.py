"""Each program of examples/ prints the output that its documentation promises, and exits by itself."""

import os
import sys
from pathlib import Path

import pytest

from services.config_check.definitions import read_definitions
from services.config_check.references import find_missing
from tests.support.pages import check_output
from tests.support.programs import run_to_end
from tests.support.tiers import check_first

EXAMPLES = Path(__file__).parents[2] / "examples"
FOLDER = EXAMPLES / "own_modes"

MODES = {
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
"""Expected output by the arguments of show.py."""

PEOPLE = {
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


@pytest.mark.parametrize("command", check_first(MODES))
async def test_an_example_mode_prints_the_expected_output(command: str) -> None:
    check_output(await run_program(FOLDER / "show.py", *command.split(" ", 1)), MODES[command])


@pytest.mark.parametrize("name", check_first(PEOPLE))
async def test_a_people_example_prints_the_expected_output(name: str) -> None:
    output = await run_program(EXAMPLES / "people" / f"{name}.py")
    check_output("\n".join(" ".join(line.split()) for line in output.splitlines()), PEOPLE[name])


@pytest.mark.parametrize(("name", "tool"), [("four_eyes", "pay"), ("on_call", "restart_pump")])
async def test_an_example_whose_tools_cannot_run_says_why(tmp_path: Path, name: str, tool: str) -> None:
    """With an empty folder as PATH, bubblewrap is not installed."""
    program = EXAMPLES / "people" / f"{name}.py"
    code, output, errors = await run_to_end(sys.executable, program, env=os.environ | {"PATH": str(tmp_path)})
    assert (code, output) == (1, b"")
    assert f"this example needs the tool {tool}, which cannot be used: " in errors.decode()
    assert "bwrap is not installed" in errors.decode()


async def run_program(program: Path, *arguments: str) -> str:
    code, output, errors = await run_to_end(sys.executable, program, *arguments, timeout_s=400)
    assert code == 0, output.decode() + errors.decode()
    return output.decode()


def test_headrace_check_reads_modes_and_names_missing_files(tmp_path: Path) -> None:
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


def test_every_people_example_is_tested_and_in_the_readme() -> None:
    programs = {path.stem for path in (EXAMPLES / "people").glob("*.py")} - {"suite"}
    assert programs == PEOPLE.keys()
    page = (EXAMPLES / "README.md").read_text()
    assert all(f"examples/people/{name}.py" in page for name in programs)
