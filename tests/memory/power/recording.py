"""System calls by which a command changed a folder, recorded by strace, in the order in which they ended."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.programs import run_to_end

CALLS = "openat,pwrite64,write,ftruncate,fdatasync,fsync,syncfs,rename,unlink,unlinkat,mkdir,rmdir"

_STRING = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_FD = re.compile(r"<((?:\\x[0-9a-f]{2})*)>")
_CALL = re.compile(r"(\w+)\((.*)\)\s+= (\d+)(.*)")
_RESUMED = re.compile(r"<\.\.\. \w+ resumed>(.*)")


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    """create, write, truncate, sync, sync all, rename, unlink, mkdir, rmdir, or print."""
    start: int
    end: int
    """Places in the order of all calls."""
    path: str
    data: bytes = b""
    """Bytes that were written or printed."""
    at: int = 0
    """The offset of a write; the size of a truncate."""
    target: str = ""
    """The new path of a rename."""


async def record_calls(command: list[str], folder: Path, trace: Path) -> list[Call]:
    """Run `command`, and return its changes to `folder`, which starts empty, and its lines on standard output."""
    strace = (
        "strace",
        "-f",
        "--seccomp-bpf",
        "-qq",
        "-y",
        "-xx",
        "-s",
        "10000000",
        "-o",
        str(trace),
        "-e",
        f"trace={CALLS}",
    )
    await run_to_end(*strace, *command, stderr=None)
    with trace.open() as lines:
        return list(_Reader(str(folder)).read_calls(lines))


class _Reader:
    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._sizes: dict[str, int] = {}
        """By path, for calls that do not say at which offset they write."""
        self._offsets: dict[str, int] = {}

    def read_calls(self, lines: Iterator[str]) -> Iterator[Call]:
        unfinished: dict[str, tuple[int, str]] = {}
        for place, line in enumerate(lines):
            thread, _, text = line.rstrip("\n").partition(" ")
            text = text.lstrip()
            if text.endswith(" <unfinished ...>"):
                unfinished[thread] = place, text.removesuffix(" <unfinished ...>")
                continue
            start = place
            if resumed := _RESUMED.match(text):
                start, before = unfinished.pop(thread)
                text = before + resumed[1]
            if (match := _CALL.match(text)) is not None:
                yield from self._read_call(start, place, *match.groups())

    def _read_call(self, start: int, end: int, name: str, arguments: str, result: str, rest: str) -> Iterator[Call]:
        strings = [_unescape(text) for text in _STRING.findall(arguments)]
        files = [_unescape(text).decode() for text in _FD.findall(arguments)]
        last = arguments.rpartition(", ")[2]
        match name:
            case "openat":
                yield from self._read_open(start, end, _unescape(_FD.findall(rest)[0]).decode(), arguments)
                return
            case "pwrite64":
                call = Call("write", start, end, files[0], strings[0][: int(result)], int(last))
            case "write" if arguments.startswith("1<"):
                yield Call("print", start, end, "", strings[0])
                return
            case "write":
                at = self._offsets.get(files[0], 0)
                call = Call("write", start, end, files[0], strings[0][: int(result)], at)
                self._offsets[files[0]] = at + int(result)
            case "ftruncate":
                call = Call("truncate", start, end, files[0], at=int(last))
            case "fsync" | "fdatasync":
                call = Call("sync", start, end, files[0])
            case "syncfs":
                call = Call("sync all", start, end, files[0])
            case "rename":
                call = Call("rename", start, end, strings[0].decode(), target=strings[1].decode())
            case "unlinkat":
                call = Call("unlink", start, end, f"{files[0]}/{strings[0].decode()}")
            case _:
                call = Call(name, start, end, strings[0].decode())
        if call.path.startswith(self._folder):
            self._note_size(call)
            yield call

    def _read_open(self, start: int, end: int, path: str, arguments: str) -> Iterator[Call]:
        if not path.startswith(self._folder) or "O_DIRECTORY" in arguments:
            return
        if "O_CREAT" in arguments and path not in self._sizes:
            self._sizes[path] = 0
            yield Call("create", start, end, path)
        if "O_TRUNC" in arguments and self._sizes.get(path):
            self._sizes[path] = 0
            yield Call("truncate", start, end, path)
        self._offsets[path] = self._sizes.get(path, 0) if "O_APPEND" in arguments else 0

    def _note_size(self, call: Call) -> None:
        match call.name:
            case "write":
                self._sizes[call.path] = max(self._sizes.get(call.path, 0), call.at + len(call.data))
            case "truncate":
                self._sizes[call.path] = call.at
            case "unlink":
                self._sizes.pop(call.path, None)
            case "rename":
                self._sizes[call.target] = self._sizes.pop(call.path)
            case _:
                pass


def _unescape(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))
