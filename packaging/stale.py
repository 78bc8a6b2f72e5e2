"""Names the files that are not what `make gen` writes, which it does in a copy of the checkout."""

from __future__ import annotations

import filecmp
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]

SHARED = (".venv", ".venv-proto", "build")
"""Environments and clients are the checkout's: the copies keep the times of their files, so make finds nothing new."""


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="headrace-") as folder:
        copy = Path(folder)
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).is_file() and name not in SHARED:
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, copy / name)
        for name in SHARED:
            (copy / name).symlink_to(ROOT / name)
        if code := subprocess.run(["make", "--no-print-directory", "gen", "HASHES="], cwd=copy, check=False).returncode:
            return code
        made = [file.relative_to(copy) for file in copy.rglob("*") if file.is_file()]
        made = [name for name in made if not {*SHARED, ".ruff_cache", "__pycache__"} & {*name.parts}]
        stale = [str(name) for name in made if not is_same(copy / name, ROOT / name)]
    for name in sorted(stale):
        print(f"not what `make gen` writes: {name}")
    return int(bool(stale))


def is_same(copy: Path, file: Path) -> bool:
    return file.is_file() and filecmp.cmp(copy, file, shallow=False)


if __name__ == "__main__":
    sys.exit(main())
