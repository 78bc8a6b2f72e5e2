"""Reads the configuration's skills: the front matter of each SKILL.md (docs/reference/tools.md).

A bad SKILL.md leaves the skill's last valid one in force. Other keys of the open format (license, metadata, …) are
allowed. The text below is for the model, which reads it with read_file. The folder is not watched: each request reads
it (20 µs a skill), but no unchanged file again.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import structlog
from pydantic import AliasChoices, BaseModel, Field, StringConstraints, ValidationError

from headrace.errors import Overloaded
from headrace.regular_files import noting_passing_errors, read_regular_file
from headrace.yaml_loading import load_yaml
from services.runtime.files.refused_files import REFUSED_FILES, report_refusal

log = structlog.get_logger()

FILE = "SKILL.md"

FILE_BYTES_MAX = 256 * 1024

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")

_FRONT = re.compile(r"\A---[ \t]*\r?\n(.*?)^---[ \t]*\r?$", re.DOTALL | re.MULTILINE)

SKILLS_MAX = 200
"""Maximum skills, because their descriptions are part of a system prompt; further ones, by id, are left out."""


_Stamp = tuple[int, int, int]


class _Front(BaseModel):
    name: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=64)]
    """Name for people and models; mentions may use it, too."""

    description: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1024)]
    """The skill's purpose and when to use it: everything a model knows before it reads the file."""

    file_types: tuple[Annotated[str, StringConstraints(pattern=r"^\.?[A-Za-z0-9]{1,16}$")], ...] = Field(
        default=(), validation_alias=AliasChoices("fileTypes", "file-types", "file_types")
    )
    """File name extensions (`pdf`), or kinds of upload (`image`, `audio`, `text`, `pdf`, `office`, `other`): such an
    upload automatically links the skill into the chat. Also accepted as `file-types`."""


@dataclass(frozen=True, slots=True)
class Skill:
    id: str
    folder: Path
    name: str
    description: str = ""
    file_types: tuple[str, ...] = ()
    """Upload types it registers for, in lower case and without a dot."""

    text: bytes = field(default=b"", repr=False)
    """The content of SKILL.md, which chats get copies of."""

    problem: str = ""
    """Why the skill cannot be used; empty if it can."""

    is_gone: bool = False
    """Whether the folder has no SKILL.md."""


def read_skill(folder: Path) -> Skill:
    """Read a skill; errors go into its `problem`. Blocks."""
    try:
        if not _ID.fullmatch(folder.name):
            raise ValueError("its folder's name must be 1 to 64 letters, digits, _ or -")
        text = read_regular_file(folder / FILE, FILE_BYTES_MAX)
        front = _parse_front(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(map(str, first["loc"]))
        return Skill(folder.name, folder, folder.name, problem=f"{FILE}: {field}: {first['msg']}")
    except ValueError as error:
        return Skill(folder.name, folder, folder.name, problem=str(error))
    except OSError as error:
        is_gone = isinstance(error, FileNotFoundError)
        return Skill(folder.name, folder, folder.name, problem=f"{FILE}: {error.strerror}", is_gone=is_gone)
    types = tuple(dict.fromkeys(kind.lstrip(".").lower() for kind in front.file_types))
    return Skill(folder.name, folder, front.name, front.description, types, text)


def _parse_front(text: bytes) -> _Front:
    try:
        match = _FRONT.match(text.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ValueError(f"{FILE}: is not UTF-8") from error
    if match is None:
        raise ValueError(f"{FILE}: must begin with its front matter, between two lines of ---")
    return _Front.model_validate(_parse_yaml(match[1]))


def _parse_yaml(front: str) -> dict[str, Any]:
    try:
        stated = load_yaml(f"\n{front}")  # the file's first line is above it, and errors give the file's line numbers
    except ValueError as error:
        raise ValueError(f"{FILE}: the front matter is {error}") from error
    if not isinstance(stated, dict):
        raise ValueError(f"{FILE}: the front matter must have name and description")
    return stated


@dataclass(frozen=True, slots=True)
class _Entry:
    stamp: _Stamp | None
    skill: Skill
    """The skill in force."""

    is_refused: bool
    """Whether its current file is invalid."""


class SkillFolder:
    """The configuration's skills, usable by several threads: the cache is replaced in one step."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._entries: dict[str, _Entry] = {}

    def list_skills(self) -> list[Skill]:
        """List the skills by id, including unusable ones; blocks.

        Raises:
            Overloaded: The disk refused.
        """
        try:
            folders = sorted(path for path in self._folder.iterdir() if path.is_dir() and path.name[0] != ".")
        except FileNotFoundError:
            folders = []
        except OSError as error:
            raise Overloaded(f"the skills cannot be read: {error.strerror}; try again later") from error
        if len(folders) > SKILLS_MAX:
            log.error("skills left out", skills=len(folders), skills_max=SKILLS_MAX)
        entries = {folder.name: self._read_current(folder) for folder in folders[:SKILLS_MAX]}
        self._entries = entries
        REFUSED_FILES.labels("skills").set(sum(entry.is_refused for entry in entries.values()))
        return [entry.skill for entry in entries.values()]

    def find_skill(self, skill_id: str) -> Skill | None:
        return next((skill for skill in self.list_skills() if skill.id == skill_id), None)

    def _read_current(self, folder: Path) -> _Entry:
        stamp: _Stamp | None = None
        with suppress(OSError):
            status = (folder / FILE).stat()
            stamp = (status.st_ino, status.st_size, status.st_ctime_ns)
        known = self._entries.get(folder.name)
        if known is not None and known.stamp == stamp:
            return known
        with noting_passing_errors() as errors:
            skill = read_skill(folder)
        if errors:
            stamp = None  # read again the next time
        if not skill.problem:
            return _Entry(stamp, skill, is_refused=False)
        keeps_last = known is not None and not known.skill.problem and not skill.is_gone
        report_refusal("skill refused", file=f"{skill.id}/{FILE}", problem=skill.problem, last_good_kept=keeps_last)
        return _Entry(stamp, known.skill if known is not None and keeps_last else skill, is_refused=True)
