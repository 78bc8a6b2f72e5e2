"""Which files import which in the whole checkout, and so which files a change affects.

Lines are matched, not parsed, so that all files take half a second. A module's name in a string counts, too, because
tests name the processes they start that way (`-m services.memory`).
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]

TOPS = ("headrace", "services", "tests", "trials", "benchmarks", "docs", "examples", "packaging", "deploy")

_FROM = re.compile(r"^[ \t]*from ([\w.]+) import (\([^)]*\)|.*)", re.MULTILINE)
_IMPORT = re.compile(r"^[ \t]*import (.+)", re.MULTILINE)
_NAMED = re.compile(r"""["']((?:headrace|services|tests|trials|benchmarks)\.[\w.]+)["']""")
_COMMENT = re.compile(r"#.*")


def list_files() -> list[str]:
    """Return all Python files of the checkout, by their paths from its root."""
    return sorted(str(file.relative_to(ROOT)) for top in TOPS for file in (ROOT / top).rglob("*.py"))


def read_imports() -> dict[str, set[str]]:
    """Return the files of the checkout that each file imports."""
    return {file: {*find_imports((ROOT / file).read_text())} - {file} for file in list_files()}


def find_imports(source: str) -> Iterator[str]:
    """Yield the files that a source imports, and the packages that are imported with them."""
    for module, names in _FROM.findall(source):
        if module.startswith(TOPS):
            for name in _COMMENT.sub("", names).strip("()").split(","):
                yield from resolve(f"{module}.{name.split()[0]}" if name.split() else module)
    for names in _IMPORT.findall(source):
        for name in names.split(","):
            yield from resolve(name.split()[0]) if name.split() else ()
    for name in _NAMED.findall(source):
        yield from resolve(name)


@cache
def resolve(name: str) -> tuple[str, ...]:
    """Return the file of a module, or of a name's module, and the files that run when it is imported or started."""
    if not name.startswith(TOPS):
        return ()
    parts = name.split(".")
    for end in (len(parts), len(parts) - 1):
        path = Path(*parts[:end])
        for file in (path.with_suffix(".py"), path / "__init__.py", path / "__main__.py"):
            if (ROOT / file).is_file():
                packages = (path / "__main__.py", *(folder / "__init__.py" for folder in path.parents))
                return tuple(
                    str(path_or_package) for path_or_package in (file, *packages) if (ROOT / path_or_package).is_file()
                )
    return ()


def invert(imports: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return the files that import each file."""
    importers: dict[str, set[str]] = {}
    for file, imported in imports.items():
        for target in imported:
            importers.setdefault(target, set()).add(file)
    return importers


def find_distances(importers: Mapping[str, set[str]], files: Iterable[str]) -> dict[str, int]:
    """Return every file that a change of these files affects, with the number of imports between them."""
    distances = dict.fromkeys(files, 0)
    queue = deque(distances)
    while queue:
        file = queue.popleft()
        for importer in importers.get(file, ()):
            if importer not in distances:
                distances[importer] = distances[file] + 1
                queue.append(importer)
    return distances
