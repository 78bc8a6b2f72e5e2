"""The files of hashes contain exactly the versions that the constraints pin."""

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
def test_a_file_of_hashes_has_exactly_the_pinned_versions(name: str) -> None:
    text = (HASHES / f"{name}.txt").read_text()
    assert ENTRY.sub("", text) == "", "run make gen"
    # Packages only for other platforms, such as browsers, are not in the constraints.
    ours = {package: version for package, version, marker, _ in ENTRY.findall(text) if "==" not in marker}
    assert {package: PINS.get(package) for package in ours} == ours, "run make gen"


def test_no_package_of_the_suite_is_in_an_extra() -> None:
    suite, *extras = (
        read_pins((HASHES / f"{name}.txt").read_text()) for name in ("suite", "cloud", "data", "documents")
    )
    assert all(suite.keys().isdisjoint(extra) for extra in extras)
