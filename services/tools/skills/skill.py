"""One skill: what its SKILL.md says at the front (docs/reference/tools.md), or why it cannot be used.

Other keys of the open form (license, metadata, …) may be there. The text below is for the model, which reads it with
read_file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import AliasChoices, BaseModel, Field, StringConstraints, ValidationError

from headrace.regular_files import read_regular_file
from headrace.yaml_loading import load_yaml

FILE = "SKILL.md"

FILE_BYTES_MAX = 256 * 1024

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")

_FRONT = re.compile(r"\A---[ \t]*\r?\n(.*?)^---[ \t]*$", re.DOTALL | re.MULTILINE)


class _Front(BaseModel):
    name: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=64)]
    """Name for people and models; a mention may use it, too."""

    description: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1024)]
    """The skill's purpose and when to use it: all that a model knows before it reads the file."""

    file_types: tuple[Annotated[str, StringConstraints(pattern=r"^\.?[A-Za-z0-9]{1,16}$")], ...] = Field(
        default=(), validation_alias=AliasChoices("fileTypes", "file-types", "file_types")
    )
    """Endings of file names (`pdf`), or kinds of upload (`image`, `audio`, `text`, `pdf`, `office`, `other`): an upload
    of one of them links the skill into the chat by itself. Also `file-types`."""


@dataclass(frozen=True, slots=True)
class Skill:
    id: str
    folder: Path
    name: str
    description: str = ""
    file_types: tuple[str, ...] = ()
    """Upload types it claims, in lower case and without a dot."""

    text: bytes = field(default=b"", repr=False)
    """The file that said so, of which chats get copies."""

    problem: str = ""
    """Reason why the skill cannot be used; empty when it can."""

    is_gone: bool = False
    """Whether the folder has no SKILL.md."""


def read_skill(folder: Path) -> Skill:
    """Reads a skill, whose errors become its `problem`; blocks."""
    try:
        text = _read_text(folder)
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


def _read_text(folder: Path) -> bytes:
    if not _ID.fullmatch(folder.name):
        raise ValueError("its folder's name must be 1 to 64 letters, digits, _ or -")
    return read_regular_file(folder / FILE, FILE_BYTES_MAX)


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
        stated = load_yaml(f"\n{front}")  # the file's first line is above it, and lines are told as the file has them
    except ValueError as error:
        raise ValueError(f"{FILE}: the front matter is {error}") from error
    if not isinstance(stated, dict):
        raise ValueError(f"{FILE}: the front matter must have name and description")
    return stated
