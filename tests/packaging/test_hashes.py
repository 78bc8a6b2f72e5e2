"""The hashes are those of the versions that the constraints pin, and of nothing that is not needed."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HASHES = ROOT / "packaging" / "hashes"

ENTRY = re.compile(r"(\S+)==([^\s;]+)( ; [^\\]+)? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)")


def read_pins(text: str) -> dict[str, str]:
    return {name.lower().replace("_", "-"): version for name, version in re.findall(r"(?m)^([\w.-]+)==(\S+)", text)}


PINS = read_pins((ROOT / "constraints.txt").read_text())


@pytest.mark.parametrize("name", ["build", "cloud", "data", "documents", "suite"])
def test_a_file_of_hashes_has_what_the_constraints_pin_and_nothing_else(name: str) -> None:
    text = (HASHES / f"{name}.txt").read_text()
    assert ENTRY.sub("", text) == "", "run make gen"
    # What only runs elsewhere, as in browsers, is in no environment of ours, and in no constraints.
    ours = {package: version for package, version, marker, _ in ENTRY.findall(text) if "==" not in marker}
    assert {package: PINS.get(package) for package in ours} == ours, "run make gen"


def test_no_package_has_two_places() -> None:
    suite, *extras = (
        read_pins((HASHES / f"{name}.txt").read_text()) for name in ("suite", "cloud", "data", "documents")
    )
    assert all(suite.keys().isdisjoint(extra) for extra in extras)
