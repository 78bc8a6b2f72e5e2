"""The lines of a cassette: kinds, format version, and a reader with errors that name the line."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from headrace.cassette.pool import PoolReader

VERSION = 1
"""Format version in the first line. An unknown version is refused; unknown members are ignored."""

Kind: TypeAlias = Literal["call", "answer", "end", "received", "event"]

KINDS: tuple[Kind, ...] = ("call", "answer", "end", "received", "event")
"""Kinds of lines; each is also the name of the member that identifies it."""

LINES_MAX = 500_000


class CassetteError(ValueError):
    """The file is not a cassette or has an unknown version; the message names the line."""


@dataclass(frozen=True, slots=True)
class CassetteLine:
    number: int
    """Line number in the file, from 1."""
    at: int
    """Milliseconds since the start of the run."""
    kind: Kind
    given: dict[str, Any]
    """The line's JSON object, with pooled values put back."""

    @property
    def call(self) -> int:
        """Number of the call to which a call, answer or end belongs."""
        return self.given[self.kind]


@dataclass(frozen=True, slots=True)
class ModeSource:
    """An operator-defined mode, as recorded from its file."""

    sha256: str
    """SHA-256 of the original file, in hexadecimal."""
    source: str
    """Source code; if secrets in it were masked, its hash differs from `sha256`."""

    @property
    def is_whole(self) -> bool:
        return hashlib.sha256(self.source.encode()).hexdigest() == self.sha256


@dataclass(slots=True)
class Cassette:
    header: dict[str, Any]
    query: dict[str, Any]
    agents: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """Agent definitions by key, in the form of agent files."""
    own_agents: set[str] = field(default_factory=set[str])
    """Keys of agents that belonged to the tenant instead of coming from files."""
    files: dict[str, str] = field(default_factory=dict[str, str])
    """Text of the other configuration files in force, by name."""
    modes: dict[str, ModeSource] = field(default_factory=dict[str, ModeSource])
    """Code of operator-defined modes, by name."""
    version: dict[str, Any] | None = None
    """The agent version to which the run was pinned: its number (`version`), and its tools and skills."""
    withheld: str = ""
    """Scope that the reader lacked, so that definitions, files and code are left out; empty if the cassette is
    complete.
    """
    recorder: list[CassetteLine] = field(default_factory=list[CassetteLine])

    @property
    def run_id(self) -> str:
        return self.header["runId"]

    @property
    def events(self) -> list[dict[str, Any]]:
        return [line.given["event"] for line in self.recorder if line.kind == "event"]


def read_cassette(lines: Iterable[str | bytes]) -> Cassette:
    """Read a cassette from its lines; raise CassetteError for a bad one."""
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
