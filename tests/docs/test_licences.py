"""Every dependency is pinned, explained, and under an allowed licence."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from docs.generate.licences import GO_MODULES, ROOT, find_forbidden, list_packages, read_go_modules

PACKAGES = list_packages("headrace", "data", "documents")

TEXTS = {
    "Apache-2.0": r"Apache License\s+Version 2\.0",
    "BSD-3-Clause": r"Redistribution and use in source[\s\S]*Neither the name",
    "MIT": r"Permission is hereby granted, free of charge",
}
"""Words of each licence."""


@pytest.mark.parametrize("package", PACKAGES)
def test_a_packages_licence_is_allowed(package: str) -> None:
    assert find_forbidden(package) == set(), f"the licence of {package} is not among those that docs.generate allows"


def test_every_package_is_pinned() -> None:
    pinned = {
        canonicalize_name(line.partition("==")[0]) for line in (ROOT / "constraints.txt").read_text().splitlines()
    }
    assert [package for package in PACKAGES if package not in pinned] == []


def test_every_direct_dependency_is_justified() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    ours = [
        Requirement(line).name
        for line in [*project["dependencies"], *extras["data"], *extras["documents"], *extras["fuzz"]]
    ]
    page = (ROOT / "docs/architecture.md").read_text()
    explained = page[page.index("## What each dependency saves us") : page.index("## What is left out")].lower()
    assert [name for name in ours if name.lower() not in explained] == []


def test_every_go_module_has_a_recorded_licence() -> None:
    known = {path for paths in GO_MODULES.values() for path in paths.split()}
    assert read_go_modules().keys() == known


@pytest.mark.skipif(shutil.which("go") is None, reason="Go is not here")
@pytest.mark.parametrize(("licence", "path"), [(name, path) for name in TEXTS for path in GO_MODULES[name].split()])
def test_a_go_modules_licence_file_matches_its_recorded_licence(licence: str, path: str) -> None:
    command = ["go", "list", "-m", "-f", "{{.Dir}}", path]
    folder = subprocess.run(command, cwd=ROOT / "deploy/gateway", capture_output=True, text=True, check=True).stdout
    [text] = [
        file.read_text() for file in Path(folder.strip()).iterdir() if re.match(r"(?i)licen[sc]e|copying", file.name)
    ]
    assert re.search(TEXTS[licence], text)
