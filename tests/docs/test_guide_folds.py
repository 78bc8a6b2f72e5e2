"""The fold that the clients' guide shows in JavaScript, held to the cases of every reader."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.pages import GUIDES, list_blocks

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
    shown = program[program.index("let blocks") : program.index("let runId")]
    (tmp_path / "fold.mjs").write_text(shown + HARNESS)
    command = ["node", str(tmp_path / "fold.mjs"), str(CASES)]
    answers = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    cases = json.loads(CASES.read_text())
    assert dict(zip([case["name"] for case in cases], answers, strict=True)) == {
        case["name"]: case["state"]["answer"] for case in cases
    }
