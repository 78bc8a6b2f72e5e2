"""The third-party packages that the suite runs on, and their licences."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from docs.generate.markdown import code, format_table

ROOT = Path(__file__).parents[2]

ALLOWED = {
    *("0BSD", "Apache-2.0", "BSD", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "CNRI-Python"),
    *("MIT", "MIT-0", "MIT-CMU", "MPL-1.1", "MPL-2.0", "PSF-2.0", "Zlib"),
}
"""Licences that allow a company to run, change and redistribute the package."""

CHOSEN = {"tld": "MPL-1.1"}
"""Our choice among a package's alternative licences, if not all are allowed."""

_BY_CLASSIFIER = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
_BY_TEXT = {"MIT License": "MIT", "3-Clause BSD License": "BSD-3-Clause"}
"""Licences of packages without an SPDX expression, by classifier or by the first line of their text."""

GO_MODULES = {
    "Apache-2.0": """
        github.com/go-jose/go-jose/v4 github.com/prometheus/client_golang github.com/prometheus/client_model
        github.com/prometheus/common github.com/prometheus/procfs github.com/spiffe/go-spiffe/v2
        google.golang.org/genproto/googleapis/api google.golang.org/genproto/googleapis/rpc google.golang.org/grpc
        google.golang.org/grpc/cmd/protoc-gen-go-grpc
        """,
    "BSD-3-Clause": """
        github.com/google/uuid github.com/grpc-ecosystem/grpc-gateway/v2 github.com/munnerz/goautoneg golang.org/x/net
        golang.org/x/sys golang.org/x/text golang.org/x/time google.golang.org/protobuf
        """,
    "MIT": """
        github.com/beorn7/perks github.com/cespare/xxhash/v2 go.yaml.in/yaml/v3
        """,
}
"""Paths of Go modules by licence; a test compares them with the licence texts."""


def list_python_licences() -> str:
    rows = [
        [code(name), metadata.version(name), find_licence(name)]
        for name in list_packages("headrace", "data", "documents")
    ]
    return format_table("package | version | licence", rows)


def list_go_licences() -> str:
    known = {path: licence for licence, paths in GO_MODULES.items() for path in paths.split()}
    modules = read_go_modules()
    return format_table("module | version | licence", [[code(path), modules[path], known[path]] for path in modules])


def list_packages(name: str, *extras: str) -> list[str]:
    """Return the packages required by `name` with these extras, directly or indirectly, without `name` itself."""
    found: set[tuple[str, str]] = set()
    left = [(name, extra) for extra in ("", *extras)]
    while left:
        package, extra = one = left.pop()
        if one in found:
            continue
        found.add(one)
        for needed in map(Requirement, metadata.requires(package) or ()):
            if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                left += [(canonicalize_name(needed.name), wanted) for wanted in ("", *needed.extras)]
    return sorted({package for package, _ in found} - {name})


def find_licence(package: str) -> str:
    """Return the package's licence as an SPDX expression, if its metadata has one."""
    about = metadata.metadata(package)
    if "License-Expression" in about:
        return about["License-Expression"]
    classifiers = [line.rpartition(" :: ")[2] for line in about.get_all("Classifier") or []]
    by_classifier = [_BY_CLASSIFIER[line] for line in classifiers if line in _BY_CLASSIFIER]
    if by_classifier:
        return " OR ".join(by_classifier)
    text = about["License"].partition("\n")[0] if "License" in about else "unknown"
    return _BY_TEXT.get(text, text)


def find_forbidden(package: str) -> set[str]:
    """Return the licences of the package that are not in ALLOWED."""
    licence = CHOSEN.get(package) or find_licence(package)
    return set(re.findall(r"[\w.-]+", licence)) - {"AND", "OR"} - ALLOWED


def read_go_modules() -> dict[str, str]:
    """Return the versions of the modules required by deploy/gateway, by path."""
    lines = (ROOT / "deploy/gateway/go.mod").read_text().splitlines()
    needed = (line.split() for line in lines if line.startswith("\t") and " v" in line)
    return dict(sorted((path, version) for path, version, *_ in needed))
