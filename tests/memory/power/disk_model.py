"""A model of a disk that loses power, which produces any folder that may remain.

A file's bytes are safe once a sync of it has started after they were written, its name once a sync of its folder has.
Of everything else, each sector holds what any earlier write put there, a file has any of its sizes, and a folder any of
its changes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TypeAlias

from tests.memory.power.recording import Call

SECTOR = 512


@dataclass(slots=True, eq=False)
class File:
    safe: bytes = b""
    pending: list[Call] = field(default_factory=list[Call])

    def sync(self, start: int) -> None:
        for call in [call for call in self.pending if call.end <= start]:
            self.safe = _apply(self.safe, call)
            self.pending.remove(call)

    def choose(self, random: Random) -> bytes:
        versions = [self.safe]
        for call in self.pending:
            versions.append(_apply(versions[-1], call))
        shape = random.choice(("safe", "last", "any", "any"))
        if shape != "any":
            return versions[0 if shape == "safe" else -1]
        sizes = sorted({len(version) for version in versions})
        size = random.choice((*sizes, random.randint(sizes[0], sizes[-1]) // SECTOR * SECTOR))
        chosen = bytearray()
        for start in range(0, max(size, sizes[0]), SECTOR):
            chosen += random.choice(versions)[start : start + SECTOR].ljust(SECTOR, b"\0")
        return bytes(chosen[: max(size, sizes[0])])


@dataclass(slots=True, eq=False)
class Folder:
    safe: dict[str, Entry] = field(default_factory=dict[str, "Entry"])
    pending: list[tuple[int, Change]] = field(default_factory=list[tuple[int, "Change"]])
    """Ends of calls, and the changes they make."""
    now: dict[str, Entry] = field(default_factory=dict[str, "Entry"])

    def change(self, end: int, change: Change) -> None:
        self.pending.append((end, change))
        change(self.now)

    def sync(self, start: int) -> None:
        for end, change in list(self.pending):
            if end <= start:
                change(self.safe)
                self.pending.remove((end, change))

    def choose(self, random: Random) -> dict[str, Entry]:
        entries = dict(self.safe)
        chance = random.choice((0.0, 0.5, 1.0))
        for _, change in self.pending:
            if random.random() < chance:
                change(entries)
        return entries


Entry: TypeAlias = "File | Folder"
Change: TypeAlias = Callable[[dict[str, Entry]], None]


class Disk:
    """The folder at `root` after the given calls."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._top = Folder()

    def apply_calls(self, calls: Iterable[Call]) -> None:
        for call in calls:
            self._take(call)

    def write_any(self, target: Path, random: Random) -> None:
        """Write a folder that a power cut may leave now."""
        _write_folder(self._top, target, random)

    def _take(self, call: Call) -> None:
        if call.name == "print":
            return
        if call.name == "sync":
            entry = self._find(call.path)
            if entry is not None:
                entry.sync(call.start)
            return
        if call.name == "sync all":
            _sync_all(self._top, call.start)
            return
        parent, name = self._find(os.path.dirname(call.path)), os.path.basename(call.path)
        assert isinstance(parent, Folder)
        if call.name in ("write", "truncate"):
            file = parent.now.get(name)
            if isinstance(file, File):  # an open file may have no name any more
                file.pending.append(call)
            return
        entry = parent.now.get(name)
        match call.name:
            case "create" | "mkdir":
                new_entry = File() if call.name == "create" else Folder()
                parent.change(call.end, lambda entries: entries.update({name: new_entry}))
            case "rename":
                assert os.path.dirname(call.target) == os.path.dirname(call.path), "the model knows one folder"
                assert entry is not None
                moved, target = entry, os.path.basename(call.target)

                def move(entries: dict[str, Entry]) -> None:
                    entries.pop(name, None)
                    entries[target] = moved

                parent.change(call.end, move)
            case _:
                parent.change(call.end, lambda entries: entries.pop(name, None) and None)

    def _find(self, path: str) -> Entry | None:
        found: Entry = self._top
        for name in path.removeprefix(self._root).strip("/").split("/"):
            if not name:
                continue
            if not isinstance(found, Folder) or name not in found.now:
                return None
            found = found.now[name]
        return found


def _apply(data: bytes, call: Call) -> bytes:
    if call.name == "truncate":
        return data[: call.at].ljust(call.at, b"\0")
    return data[: call.at].ljust(call.at, b"\0") + call.data + data[call.at + len(call.data) :]


def _sync_all(entry: Entry, start: int) -> None:
    entry.sync(start)
    if isinstance(entry, Folder):
        for inner in entry.now.values():
            _sync_all(inner, start)


def _write_folder(folder: Folder, target: Path, random: Random) -> None:
    target.mkdir()
    for name, entry in folder.choose(random).items():
        if isinstance(entry, Folder):
            _write_folder(entry, target / name, random)
        else:
            (target / name).write_bytes(entry.choose(random))
