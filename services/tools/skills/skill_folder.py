"""Lists the configuration's skills.

The folder is not watched: each request reads it (20 µs a skill), but no unchanged file again.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import structlog

from services.tools.skills.skill import FILE, Skill, read_skill

SKILLS_MAX = 200
"""Their descriptions are part of a system prompt; further ones, by id, are left out."""

log = structlog.get_logger()

_Stamp = tuple[int, int, int]


class SkillFolder:
    """The configuration's skills, for several threads: the cache is replaced in one step."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._read: dict[str, tuple[_Stamp | None, Skill]] = {}

    def list_skills(self) -> list[Skill]:
        """Lists the skills by id, unusable ones included; blocks."""
        try:
            folders = sorted(path for path in self._folder.iterdir() if path.is_dir() and path.name[0] != ".")
        except FileNotFoundError:
            folders = []
        if len(folders) > SKILLS_MAX:
            log.error("skills left out", skills=len(folders), skills_max=SKILLS_MAX)
        self._read = {folder.name: self._read_current(folder) for folder in folders[:SKILLS_MAX]}
        return [skill for _, skill in self._read.values()]

    def find_skill(self, skill_id: str) -> Skill | None:
        return next((skill for skill in self.list_skills() if skill.id == skill_id), None)

    def _read_current(self, folder: Path) -> tuple[_Stamp | None, Skill]:
        stamp: _Stamp | None = None
        with suppress(OSError):
            status = (folder / FILE).stat()
            stamp = (status.st_ino, status.st_size, status.st_ctime_ns)
        known = self._read.get(folder.name)
        if known is not None and known[0] == stamp:
            return known
        skill = read_skill(folder)
        if skill.problem:
            log.error("skill refused", skill=skill.id, problem=skill.problem)
        return stamp, skill
