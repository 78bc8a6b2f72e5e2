"""Characters that hide or reorder text are made visible, in Python and in the console alike."""

import json
import shutil
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from headrace.shown_text import SHOWN_CHARS_MAX, isolate, make_arguments_visible, make_visible, shorten_line

ROOT = Path(__file__).parents[1]
CASES: list[dict[str, Any]] = json.loads((ROOT / "tests/shown_text_cases.json").read_text())

SHOW = """
    const { showText } = await import(process.argv[1]);
    const { readFileSync } = await import("node:fs");
    console.log(JSON.stringify(JSON.parse(readFileSync(0)).map(showText)));
"""

INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Zs", "Zl", "Zp"})


@pytest.mark.parametrize("case", CASES)
def test_hiding_and_reordering_characters_are_escaped_and_rtl_text_is_isolated(case: dict[str, Any]) -> None:
    assert isolate(make_visible(case["text"])) == case["shown"]


@pytest.mark.skipif(shutil.which("node") is None, reason="NOTICE: Node is not installed: the console's is NOT tried")
def test_the_console_escapes_text_alike() -> None:
    module = ROOT / "services/facade/console/static/elements/shown_text.js"
    command = ["node", "--experimental-default-type=module", "--input-type=module", "-e", SHOW, str(module)]
    given = json.dumps([case["text"] for case in CASES])
    shown = subprocess.run(command, input=given, capture_output=True, check=True, text=True).stdout
    assert json.loads(shown) == [case["shown"] for case in CASES]


def test_every_invisible_unicode_character_is_escaped() -> None:
    everything = [chr(code) for code in range(sys.maxunicode + 1)]
    hidden = {char for char in everything if unicodedata.category(char) in INVISIBLE} - {" ", "\t", "\n"}
    assert [char for char in hidden if make_visible(char) == char] == []


def test_escaped_json_keeps_its_value() -> None:
    value = {f"k\u202e{at}": [case["text"]] for at, case in enumerate(CASES)}
    assert json.loads(make_visible(json.dumps(value, ensure_ascii=False))) == value


def test_long_runs_of_spaces_in_arguments_are_escaped() -> None:
    value = {"command": "ls" + " " * 3000 + "; rm -rf ~", "indented": "\n" + " " * 40 + "x"}
    shown = make_arguments_visible(json.dumps(value, indent=2))
    assert (json.loads(shown), " " * 41 in shown) == (value, False)


def test_a_shortened_line_states_how_much_is_missing() -> None:
    assert shorten_line("a\u202e b\n c", 100) == "a\\u202e b c"
    assert shorten_line("x" * 1500 + "y", 500) == "x" * 500 + "… (1,001 more characters)"
    assert shorten_line("x" * SHOWN_CHARS_MAX, SHOWN_CHARS_MAX) == "x" * SHOWN_CHARS_MAX
