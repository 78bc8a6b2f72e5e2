"""Lists the configuration's skills. A bad SKILL.md leaves the skill's last good one in force.

The folder is not watched: each request reads it (20 µs a skill), but no unchanged file again.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from headrace.errors import Overloaded
from headrace.regular_files import noting_passing_errors
from services.runtime.files.refused_files import REFUSED_FILES, report_refusal
from services.tools.skills.skill import FILE, Skill, read_skill

SKILLS_MAX = 200
"""Their descriptions are part of a system prompt; further ones, by id, are left out."""

log = structlog.get_logger()

_Stamp = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class _Entry:
    stamp: _Stamp | None
    skill: Skill
    """The skill in force."""

    is_refused: bool
    """Whether its file is a bad one now."""


class SkillFolder:
    """The configuration's skills, for several threads: the cache is replaced in one step."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._entries: dict[str, _Entry] = {}

    def list_skills(self) -> list[Skill]:
        """Lists the skills by id, unusable ones included; blocks.

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
