"""The lines of a cassette: their names, the version, and reading them back with messages that name the line."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from headrace.cassette.pool import PoolReader

VERSION = 1
"""In the first line. A version that is not known is not guessed at; members that are not known are ignored."""

Kind: TypeAlias = Literal["call", "answer", "end", "received", "event"]

KINDS: tuple[Kind, ...] = ("call", "answer", "end", "received", "event")
"""The lines of a cassette, by the member that names them."""

LINES_MAX = 500_000


class CassetteError(ValueError):
    """The file is no cassette, or of a version that this program does not know; the message names the line."""


@dataclass(frozen=True, slots=True)
class CassetteLine:
    number: int
    """Of the line in the file, from 1."""
    at: int
    """Milliseconds since the run began."""
    kind: Kind
    given: dict[str, Any]
    """The line as it is, with the values of the pool in their places."""

    @property
    def call(self) -> int:
        """The call that a call, answer or end is of."""
        return self.given[self.kind]


@dataclass(frozen=True, slots=True)
class ModeSource:
    """A mode of the operator's own, as its file was."""

    sha256: str
    """Of the file, in hexadecimal."""
    source: str
    """With what looked like a secret masked, and then another hash."""

    @property
    def is_whole(self) -> bool:
        return hashlib.sha256(self.source.encode()).hexdigest() == self.sha256


@dataclass(slots=True)
class Cassette:
    header: dict[str, Any]
    query: dict[str, Any]
    agents: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """Definitions by key, as agent files have them."""
    own_agents: set[str] = field(default_factory=set[str])
    """Keys of those that were the tenant's own, and not of files."""
    files: dict[str, str] = field(default_factory=dict[str, str])
    """Text of other configuration files in force, by name."""
    modes: dict[str, ModeSource] = field(default_factory=dict[str, ModeSource])
    """The code of modes of the operator's own, by name."""
    version: dict[str, Any] | None = None
    """The version that the run was pinned to: its number (`version`), and the tools and skills that it has."""
    withheld: str = ""
    """The scope that its reader lacked: definitions, files and code are not in it; empty: it is whole."""
    recorder: list[CassetteLine] = field(default_factory=list[CassetteLine])

    @property
    def run_id(self) -> str:
        return self.header["runId"]

    @property
    def events(self) -> list[dict[str, Any]]:
        return [line.given["event"] for line in self.recorder if line.kind == "event"]


def read_cassette(lines: Iterable[str | bytes]) -> Cassette:
    """Read a cassette from its lines; raises CassetteError."""
    objects = _read_objects(lines)
    number, header = next(objects, (1, {}))
    _check_header(number, header)
    cassette, pool = Cassette(header, {}), PoolReader()
    for number, given in objects:
        try:
            _take_line(cassette, pool, number, given)
        except (KeyError, TypeError, ValueError) as error:
            raise CassetteError(f"line {number}: {error}") from error
    if not cassette.query:
        raise CassetteError("there is no line with the query")
    return cassette


def _read_objects(lines: Iterable[str | bytes]) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(lines, 1):
        if number > LINES_MAX:
            raise CassetteError(f"more than {LINES_MAX} lines")
        if not line.strip():
            continue
        try:
            given = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise CassetteError(f"line {number}: no JSON: {error}") from None
        if not isinstance(given, dict):
            raise CassetteError(f"line {number}: expected a JSON object")
        yield number, given


def _check_header(number: int, header: dict[str, Any]) -> None:
    version = header.get("cassette")
    if not isinstance(version, int) or isinstance(version, bool):
        raise CassetteError(f"line {number}: no cassette: its first line has no member `cassette` with the version")
    if not 1 <= version <= VERSION:
        raise CassetteError(f"line {number}: version {version} is not known; this program knows 1 to {VERSION}")
    for name in ("runId", "chatId", "agentKey", "at"):
        if name not in header:
            raise CassetteError(f"line {number}: `{name}` is missing")


def _take_line(cassette: Cassette, pool: PoolReader, number: int, given: dict[str, Any]) -> None:
    cassette.withheld = given.get("withheld") or cassette.withheld
    kind: Kind | None = next((name for name in KINDS if name in given), None)
    if kind is not None:
        cassette.recorder.append(CassetteLine(number, given["at"], kind, pool.put_back(given)))
    elif "value" in given:
        pool.add(given["value"], given["json"])
    elif "agent" in given:
        cassette.agents[given["agent"]] = given["definition"]
        if given.get("isTenants"):
            cassette.own_agents.add(given["agent"])
    elif "version" in given:
        cassette.version = given
    elif "mode" in given:
        cassette.modes[given["mode"]] = ModeSource(given["sha256"], given["source"])
    elif "file" in given:
        cassette.files[given["file"]] = given["text"]
    elif "query" in given:
        cassette.query = given["query"]
