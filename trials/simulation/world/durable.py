"""Models which files and names of a folder survive a power cut."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

SECTOR = 512

SQLITE = ".sqlite"
"""Part of the names of files that SQLite syncs."""


@dataclass(slots=True)
class Durable:
    """The durable state of a folder.

    Each file has a number, which it keeps in every copy of the folder; paths are relative to the folder.
    """

    random: Random
    names: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    """Names in each folder when it was last synced."""
    contents: dict[int, bytes] = field(default_factory=dict[int, bytes])
    """Bytes of each file when it was last synced."""
    root: Path = Path()
    """The newest copy of the folder."""
    _numbers: dict[int, int] = field(default_factory=dict[int, int])
    """Number of each inode in the newest copy."""
    _next: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def sync(self, path: Path) -> None:
        if path.is_dir():
            self.names[self._place(path)] = self._list(path)
        else:
            self.contents[self._number(path)] = path.read_bytes()

    def sync_all(self) -> None:
        for folder in (self.root, *list_folders(self.root)):
            self.names[self._place(folder)] = self._list(folder)
        for file in list_files(self.root):
            self.contents[self._number(file)] = file.read_bytes()

    def follow_copy(self, before: Path, after: Path) -> None:
        """Give the files of a copy the numbers of the originals."""
        known = self._numbers
        self.root, self._numbers = after, {}
        for path in (*list_folders(before), *list_files(before)):
            if (number := known.get(path.stat().st_ino)) is not None:
                copy = after / path.relative_to(before)
                if copy.exists():
                    self._numbers[copy.stat().st_ino] = number

    def lose_unsynced(self) -> list[str]:
        """Lose a random part of the unsynced data; return a description of each loss, which begins with its kind."""
        lost: list[str] = []
        for folder in (self.root, *list_folders(self.root)):
            place = self._place(folder)
            lost += self._lose_names(folder, self.names.get(place, {}), self._list(folder))
        for file in list_files(self.root):
            lost += self._lose_bytes(file)
        return lost

    def _lose_names(self, folder: Path, synced: dict[str, int], there: dict[str, int]) -> Iterator[str]:
        for name in sorted({*synced, *there}):
            number, path = synced.get(name), folder / name
            if number == there.get(name) or self.random.random() < 0.5 or path.is_dir():
                continue  # folders are made at the first start, and stay
            if number is None:
                path.unlink()
                yield f"name lost: {_shorten(name)}"
            else:
                path.unlink(missing_ok=True)
                path.write_bytes(self.contents.get(number, b""))
                self._numbers[path.stat().st_ino] = number
                yield f"name back: {_shorten(name)}"

    def _lose_bytes(self, file: Path) -> Iterator[str]:
        written, synced = file.read_bytes(), self.contents.get(self._number(file), b"")
        if written == synced:
            return
        if written.startswith(synced):
            file.write_bytes(self._tear(synced, written))
        elif self.random.random() < 0.5:
            file.write_bytes(synced)
        yield f"bytes lost: {_shorten(file.name)} some of {len(written) - len(synced)} unsynced ones"

    def _tear(self, synced: bytes, written: bytes) -> bytes:
        size = self.random.choice((len(synced), len(written), self.random.randint(len(synced), len(written))))
        torn = bytearray(written[:size])
        for start in range(len(synced) // SECTOR * SECTOR, size, SECTOR):
            if self.random.random() < 0.3:
                end = min(start + SECTOR, size)
                torn[start:end] = synced[start:end].ljust(end - start, b"\0")
        return bytes(torn)

    def _list(self, folder: Path) -> dict[str, int]:
        return {path.name: self._number(path) for path in sorted(folder.iterdir()) if SQLITE not in path.name}

    def _number(self, path: Path) -> int:
        inode = path.stat().st_ino
        if inode not in self._numbers:
            self._numbers[inode] = next(self._next)
        return self._numbers[inode]

    def _place(self, path: Path) -> str:
        return "/".join(path.parts[len(self.root.parts) :])


def list_folders(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_dir())


def list_files(root: Path) -> list[Path]:
    """List the files below a folder that are modelled."""
    return sorted(path for path in root.rglob("*") if path.is_file() and SQLITE not in path.name)


def _shorten(name: str) -> str:
    """Return the first characters of a name, which is an id."""
    return name[:5]
