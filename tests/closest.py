"""`python -m tests.closest FILES…`: the test files that a change of these files can affect, the nearest first.

A test is affected by files that it imports, directly or indirectly, or that a process it starts by name imports. For a
file that is not Python, the tests are those of the nearest folder that mirrors the file's.
"""

import sys
from collections.abc import Iterable
from pathlib import Path

from tests.support.imports import ROOT, find_distances, invert, read_imports


def find_closest(changed: Iterable[str]) -> list[str]:
    """Return test files: changed ones, those in folders that mirror the changes, and the others by their distance."""
    changed = [*changed]
    distances = find_distances(invert(read_imports()), (file for file in changed if file.endswith(".py")))
    mirrors = [mirror for file in changed if (mirror := find_mirror(file))]
    seeing = {file for file in distances if is_test(file)}
    for file, mirror in zip(changed, map(find_mirror, changed), strict=True):
        if not file.endswith(".py") and mirror:
            seeing |= {str(test.relative_to(ROOT)) for test in (ROOT / mirror).rglob("test_*.py")}

    def rank(test: str) -> tuple[bool, bool, int, str]:
        is_mirror = any(test.startswith(f"{mirror}/") for mirror in mirrors)
        return test not in changed, not is_mirror, distances.get(test, 0), test

    return sorted(seeing, key=rank)


def is_test(file: str) -> bool:
    return file.startswith("tests/") and Path(file).name.startswith("test_")


def find_mirror(file: str) -> str | None:
    """Return the test folder named like the file's folder or its nearest parent that has one, but not tests/ itself."""
    parts = Path(file).parts
    parts = parts[1:] if parts[0] in ("tests", "services", "headrace") else parts
    for end in range(len(parts), 0, -1):
        folder = Path("tests", *(Path(part).stem for part in parts[:end]))
        if (ROOT / folder).is_dir():
            return str(folder)
    return None


def main() -> None:
    root = f"{ROOT}/"
    for test in find_closest(str(Path(file).resolve()).removeprefix(root) for file in sys.argv[1:]):
        print(test)


if __name__ == "__main__":
    main()
