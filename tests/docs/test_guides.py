"""Every guide works when a reader pastes its commands; `trials/guides.py` runs them."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pages import GUIDES, ROOT, check_output, list_blocks
from trials.guides import OWN_NETWORK, PAGES

IN_THE_CHECK = ("README", "start", "first-agent")
"""Pages that are followed there; the nightly follows them all."""

PAGE_S = 900.0


def has_own_network() -> bool:
    """Return whether a test can have its own network namespace, in which the default ports are free."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return False
    return subprocess.run([*OWN_NETWORK, "true"], capture_output=True).returncode == 0


@pytest.mark.skipif(not has_own_network(), reason="unshare --net is not allowed: the guides are NOT followed")
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=page.stem, marks=[pytest.mark.nightly] * (page.stem not in IN_THE_CHECK)) for page in PAGES],
)
@pytest.mark.parametrize("sandbox", ["bubblewrap", pytest.param("process", marks=pytest.mark.nightly)])
def test_a_guide_does_what_it_says(page: Path, sandbox: str) -> None:
    options = () if sandbox == "bubblewrap" else ("--without-bubblewrap",)
    command = [sys.executable, "-m", "trials.guides", *options, page.stem]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PAGE_S)
    assert process.returncode == 0, process.stdout + process.stderr


def test_output_is_compared_line_by_line() -> None:
    check_output("a\nb 1\nc\n", "a\nb …\n")
    with pytest.raises(AssertionError, match="no line 'a'"):
        check_output("b\na\n", "b\na\na")
    with pytest.raises(AssertionError, match="no line"):
        check_output("abc\n", "a")


CASES = Path(__file__).parents[1] / "fold_cases.json"

HARNESS = """
import { readFileSync } from "node:fs";
const answers = JSON.parse(readFileSync(process.argv[2])).map(({ events }) => {
  blocks = new Map();
  events.forEach(fold);
  return answer();
});
console.log(JSON.stringify(answers));
"""


def test_the_guides_fold_gives_the_answer_of_each_case(tmp_path: Path) -> None:
    if shutil.which("node") is None:
        pytest.skip("node is missing: the guide's fold is NOT tried")
    [program] = [block.text for block in list_blocks(GUIDES / "clients.md") if block.form == "js"]
    fold_code = program[program.index("let blocks") : program.index("let runId")]
    (tmp_path / "fold.mjs").write_text(fold_code + HARNESS)
    command = ["node", str(tmp_path / "fold.mjs"), str(CASES)]
    answers = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    cases = json.loads(CASES.read_text())
    assert dict(zip([case["name"] for case in cases], answers, strict=True)) == {
        case["name"]: case["state"]["answer"] for case in cases
    }
